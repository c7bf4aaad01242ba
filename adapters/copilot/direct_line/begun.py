"""Conversations whose first call has not ended: their threads have no state and no token of them yet.

Law: what is lost with the process is only what makes another try, or another listener, possible.
"""

from adapters.copilot.direct_line.state import LineState, Token

_MOST = 1000


class Begun:
    def __init__(self) -> None:
        self._kept: dict[str, tuple[LineState, Token]] = {}

    def keep(self, handle: str, state: LineState, token: Token) -> None:
        """The oldest give way to the newest."""
        self._kept[handle] = state, token
        while len(self._kept) > _MOST:
            del self._kept[next(iter(self._kept))]

    def find(self, handle: str) -> tuple[LineState, Token | None]:
        return self._kept.get(handle) or (LineState(), None)

    def has(self, handle: str) -> bool:
        return handle in self._kept

    def drop(self, handle: str) -> None:
        """The thread has what it needs."""
        self._kept.pop(handle, None)
