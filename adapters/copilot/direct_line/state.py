"""What a thread keeps of its conversation. Law: the token is a secret, all else says where the conversation is."""

from typing import Self

import msgspec

from gateway.a2a.model import Json


class LineState(msgspec.Struct, frozen=True, omit_defaults=True):
    """`watermark` is that of the last activities that were read, `last` the id of the last message that was sent and answered,
    `user` the id that the bot knows the caller by. `ended`: the bot has ended the conversation."""

    user: str = ""
    watermark: str | None = None
    last: str | None = None
    ended: bool = False

    @classmethod
    def read(cls, state: Json) -> Self:
        """Raises: ValueError for a state of another form."""
        return cls() if state is None else msgspec.convert(state, cls)

    def json(self) -> Json:
        return msgspec.to_builtins(self)


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
