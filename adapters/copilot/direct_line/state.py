"""What a thread keeps of its conversation. Law: the token is a secret, all else says where the conversation is."""

from collections.abc import Iterable
from typing import Self

import msgspec
from msgspec.structs import replace

from gateway.a2a.model import Json

_MOST_TOLD = 100
_MOST_GIVEN_UP = 30


class LineState(msgspec.Struct, frozen=True, omit_defaults=True):
    """`watermark` is that of the last activities that were read, `last` the id of the last message that was sent and answered,
    `user` the id that the bot knows the caller by. `ended`: the bot has ended the conversation.

    `seen` is the number of the latest activity that was read, `told` are names of those without a number; both are known when
    they come again. `given_up` are the ids of messages whose task has ended without the answer. `replies`: whether the last
    answer said which message it answers; None: there was none.
    """

    user: str = ""
    watermark: str | None = None
    last: str | None = None
    ended: bool = False
    seen: int | None = None
    told: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()
    replies: bool | None = None

    @classmethod
    def read(cls, state: Json) -> Self:
        """Raises: ValueError for a state of another form."""
        return cls() if state is None else msgspec.convert(state, cls)

    def json(self) -> Json:
        return msgspec.to_builtins(self)

    def knowing(self, told: Iterable[str]) -> Self:
        """The oldest names give way to the newest."""
        return replace(self, told=_latest(self.told, told, _MOST_TOLD))

    def giving_up(self, messages: Iterable[str]) -> Self:
        """As `knowing`, for the ids of messages."""
        return replace(self, given_up=_latest(self.given_up, messages, _MOST_GIVEN_UP))


def _latest(before: Iterable[str], added: Iterable[str], most: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*before, *added)))[-most:]


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """`expires_at` is in milliseconds since the epoch; None: not known."""

    token: str
    expires_at: int | None = None

    @classmethod
    def read(cls, secret: Json) -> Self | None:
        try:
            return None if secret is None else msgspec.convert(secret, cls)
        except msgspec.ValidationError:
            return None

    def json(self) -> Json:
        return msgspec.to_builtins(self)
