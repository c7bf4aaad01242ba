"""The headers that prove who sends a request, made for each request. Law: what they are made of is in `credentials`; the
client only adds them.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

Signing: TypeAlias = Callable[[str, str, bytes], Awaitable[Mapping[str, str]]]
"""The headers of one request with this method, address (as it is sent) and body. Raises: AdapterError."""


class Credential(ABC):
    """A Signing that keeps something between requests: a token, connections of its own."""

    @abstractmethod
    async def __call__(self, method: str, url: str, body: bytes) -> Mapping[str, str]:
        """As Signing."""

    def renew(self, refused: Mapping[str, str]) -> bool:
        """The service has answered 401 to a request with these headers: whether other headers may help. They are asked
        for once more then."""
        return False

    async def aclose(self) -> None:
        """Ends what the credential has opened."""
        return
