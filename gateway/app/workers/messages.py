"""What a supervisor and a worker say to each other, by a socket that only they have: to the worker how to begin, as JSON behind
its length, then orders of one byte; from it lines of JSON."""

from typing import Any, TypeAlias

import msgspec

DRAIN, END, RELOAD = b"d", b"e", b"r"
"""Orders: to let running turns end, not to wait for them, to read the configuration again."""

LENGTH_BYTES = 4


class Begin(msgspec.Struct, frozen=True):
    """What a worker is to do. `number` is from 1 on, `parent` the process number of the supervisor. `port` and `grpc_port` are
    reserved. `path` is where Python finds modules, and `given` what the command line says. `fixed` has the digests of what the
    configuration says for all workers, by the names of its sections."""

    number: int
    parent: int
    port: int
    grpc_port: int | None
    path: list[str]
    given: dict[str, Any]
    fixed: dict[str, str]


class Serves(msgspec.Struct, frozen=True, tag="serves"):
    """The worker accepts requests. `url` is where this machine reaches the gateway."""

    url: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The worker cannot start: the exit code and the text of a command that failed so."""

    code: int
    text: str


Report: TypeAlias = Serves | Failed

encode = msgspec.json.Encoder().encode
decode_begin = msgspec.json.Decoder(Begin).decode
decode_report = msgspec.json.Decoder(Serves | Failed).decode
