"""Answers requests from a folder of recordings. Law: an exchange answers one request, and no request that differs from its
own.

Ids that are made anew in each run, of contexts, messages and threads, need not be the same: two requests are equal when the
ids in one can be replaced by those in the other. The answer then has the ids of the request.
"""

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec
import structlog

from gateway.a2a.model import Json
from gateway.a2a.redaction import JsonPath
from gateway.ports.wire import Answer, End, Player, ReplayMissing, Request, occasion_of
from gateway.recording.folders import OUTSIDE, key_of
from gateway.recording.form import Exchange
from gateway.recording.masks import Masks, Secrets
from gateway.recording.recordings import Recordings
from gateway.recording.unmatched import Unmatched, difference

log = structlog.get_logger("gateway.recording.player")

_ID = re.compile(
    rb"(?<![0-9A-Za-z])"
    rb"(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?=[0-9]*[a-f])[0-9a-f]{12,64}|(?<=[0-9]:)[0-9a-f]{12})"
    rb"(?![0-9A-Za-z])"
)
"""UUIDs, and hashes of them: a number is none. Adapters write the last form beside a count."""
_HOST = re.compile(r"^\w+://[^/?]*")
_REPEATABLE = frozenset({"GET", "LIST"})
_UNAUTHORISED = 401

Ids: TypeAlias = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it is compared. `target` is path and query; `said` is all of it, with numbers for its ids."""

    agent: str
    method: str
    url: str
    target: str
    said: bytes
    ids: Ids

    @classmethod
    def of(cls, agent: str, method: str, url: str, body: Json) -> "Asked":
        target = _HOST.sub("", url)
        whole = target.encode() + b"\n" + msgspec.json.encode(body, order="deterministic")
        ids = tuple(dict.fromkeys(_ID.findall(whole)))
        numbers = {each: b"id%d" % number for number, each in enumerate(ids)}
        return cls(agent, method, url, target, _ID.sub(lambda found: numbers[found[0]], whole), ids)

    @property
    def key(self) -> tuple[str, str, bytes]:
        return self.agent, self.method, self.said


@dataclass(slots=True)
class _Recorded:
    exchange: Exchange
    asked: Asked
    used: bool = False


class Replay:
    """A folder that is being replayed. `missing` says of each request without an answer what came nearest."""

    def __init__(self, folder: Path, speed: int) -> None:
        """`speed` is how much faster than it was recorded; with 0 nothing is waited for. Raises: OSError; ValueError where
        there is nothing to replay."""
        self.folder = folder
        self.secrets = Secrets(key=key_of(folder))
        self.missing: list[str] = []
        self._passing = 1 / speed if speed else 0.0
        self._recorded: list[_Recorded] = []
        self._by_key: dict[tuple[str, str, bytes], list[_Recorded]] = {}
        self._ids: dict[bytes, bytes] = {}
        """The ids of this run, by those of the recording."""
        for exchange in Recordings(folder).all():
            if not _was_repeated(exchange):
                asked = Asked.of(exchange.ids.agent, exchange.method, exchange.url, exchange.body)
                recorded = _Recorded(exchange, asked)
                self._recorded.append(recorded)
                self._by_key.setdefault(asked.key, []).append(recorded)
        if not self._recorded:
            raise ValueError("there are no recordings in it")
        self._unmatched = Unmatched(folder)

    def tap(self, agent: str, redact: Iterable[JsonPath] = ()) -> Player:
        """Answers the requests of this agent, or those that no turn makes under this name."""
        return _AgentPlayer(self, agent, Masks(self.secrets, redact))

    @property
    def unused(self) -> tuple[str, ...]:
        """The exchanges of conversations that no request has asked for."""
        return tuple(
            each.exchange.file for each in self._recorded if not each.used and not _is_repeatable(each.exchange)
        )

    def answer(self, asked: Asked, body: str | bytes | None) -> Answer:
        """`body` is that of the request, masked. Raises: ReplayMissing."""
        equal = self._by_key.get(asked.key, [])
        unused = [each for each in equal if not each.used]
        if unused:
            found = max(unused, key=lambda each: self._known_ids(each.asked.ids, asked.ids))
        elif equal and _is_repeatable(equal[-1].exchange):
            found = equal[-1]
        else:
            raise self._missing(asked, body)
        found.used = True
        self._ids.update(zip(found.asked.ids, asked.ids, strict=True))
        return self._of_this_run(found.exchange)

    def _known_ids(self, recorded: Ids, asked: Ids) -> int:
        """How many ids are those that this run has for the recorded ones."""
        return sum(self._ids.get(old, old) == new for old, new in zip(recorded, asked, strict=True))

    def _of_this_run(self, exchange: Exchange) -> Answer:
        passing = self._passing
        headers = {name: self._renamed(value.encode()).decode() for name, value in exchange.answer_headers.items()}
        reads = tuple((at * passing, self._renamed(read)) for at, read in exchange.reads)
        how, ended = exchange.end.how, exchange.end.at * passing
        return Answer(exchange.status, headers, exchange.answered * passing, reads, ended, how)

    def _renamed(self, text: bytes) -> bytes:
        return _ID.sub(lambda found: self._ids.get(found[0], found[0]), text)

    def _missing(self, asked: Asked, body: str | bytes | None) -> ReplayMissing:
        nearest = _nearest(asked, self._recorded)
        exchange = None if nearest is None else nearest.exchange
        hint = f"Nothing of {asked.agent or OUTSIDE!r} is recorded."
        if nearest is not None:
            hint = f"The nearest recording, {nearest.exchange.file}, {_contrast(nearest.asked, asked)}."
        what = f"{asked.method} {asked.target}"
        self.missing.append(f"{asked.agent or OUTSIDE}: {what}: {hint}")
        try:
            diff = self._unmatched.write(asked.method, asked.url, body, exchange)
        except OSError as error:
            diff = f"not written: {error.strerror}"
        log.error("replay.missing", agent=asked.agent, request=what, hint=hint, diff=diff)
        return ReplayMissing(f"{what} was never recorded. {hint}", hint)


@dataclass(frozen=True, slots=True)
class _AgentPlayer(Player):
    _replay: Replay
    _agent: str
    _masks: Masks

    def answer(self, request: Request) -> Answer:
        body = self._masks.body(request.body)
        asked = Asked.of(
            occasion_of(request, self._agent).agent, request.method, self._masks.url(request.url), _as_read(body)
        )
        return self._replay.answer(asked, body)


def _as_read(body: str | bytes | None) -> Json:
    """A body as an Exchange has it."""
    if not isinstance(body, str):
        return None if body is None else base64.b64encode(body).decode()
    try:
        value: Json = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return body
    return value


def _is_repeatable(exchange: Exchange) -> bool:
    """Whether it answers again: what changes nothing, and what is the same for all conversations."""
    return exchange.method in _REPEATABLE or not exchange.ids.context


def _was_repeated(exchange: Exchange) -> bool:
    """Whether it was refused for credentials, and made again with others: a replay has none."""
    return exchange.status == _UNAUTHORISED and exchange.end.how is End.CANCELLED and not exchange.reads


def _contrast(recorded: Asked, asked: Asked) -> str:
    (address, _, body), (other, _, sent) = (each.said.partition(b"\n") for each in (recorded, asked))
    if recorded.method != asked.method or address != other:
        return "is of another address"
    path = difference(msgspec.json.decode(body), msgspec.json.decode(sent))
    return "has answered an equal request already" if path is None else f"differs at {path}"


def _nearest(asked: Asked, recorded: Sequence[_Recorded]) -> _Recorded | None:
    """Of the same agent, the one that is equal for longest; one of the same address first."""
    of_agent = [each for each in recorded if each.asked.agent == asked.agent]
    path = asked.target.partition("?")[0]

    def likeness(each: _Recorded) -> tuple[bool, bool, int]:
        same = each.asked.method == asked.method, each.asked.target.partition("?")[0] == path
        return (*same, _alike(each.asked.said, asked.said))

    return max(of_agent, key=likeness, default=None)


def _alike(one: bytes, other: bytes) -> int:
    """The number of bytes at the beginning that are the same."""
    length = min(len(one), len(other))
    low, high = 0, length
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
