"""The tool calls of one response -> adapter events. Law: the item decides the kind of a call; events about a call may come
before its item, and its output before its end. A call that is reported again is no other call, be it by the next response of a
chain, and the id of a call that goes back into a backend's chain is the backend's id of the call, never that of its item.
"""

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from types import MappingProxyType

import msgspec

from adapters.http.failures import Failures
from adapters.openai.responses import wire
from gateway.a2a.model import Part
from gateway.ports import adapter as port

_log = logging.getLogger(__name__)

NOTHING_ANSWERED: Mapping[str, str | None] = MappingProxyType({})


@dataclass(slots=True)
class _Call:
    """A tool call; `call_id` is that of its events, `item` its latest copy, with the backend's id of the call, and `index` the
    place of the item. `arguments` are None until they are complete."""

    call_id: str
    item: wire.ResponseItem
    index: int | None = None
    arguments: str | None = None

    def is_told_by(self, item: wire.ResponseItem) -> bool:
        """Whether a complete item is of the same tool and arguments."""
        return self.item.tool == item.tool and _are_alike(self.arguments or "", _arguments(item))


class ResponseCalls:
    """`chained` says that the backend keeps the calls, and takes outputs only under its own ids. `answered` are the calls whose
    outputs went out with the request, with their digests where these are known. `cut` says that some call is not whole,
    `told_again` that one of `answered` came again. `digests` are those of the calls that wait for an output, by the backend's
    id of the call."""

    def __init__(
        self, failures: Failures, *, chained: bool, answered: Mapping[str, str | None] = NOTHING_ANSWERED
    ) -> None:
        self.cut = self.told_again = False
        self.digests: dict[str, str] = {}
        self._ids: set[str] = set()
        """The ids of the events."""
        self._failures = failures
        self._chained = chained
        self._answered = answered if chained else NOTHING_ANSWERED
        self._open: dict[str, _Call] = {}
        """Announced calls, by the key of their item."""
        self._of_client: dict[str, _Call] = {}
        """The calls that the backend does not run itself, by its id of the call."""
        self._of_item: dict[str, list[_Call]] = {}
        """The same, where they are complete, in their order, by the key of their item."""
        self._early: dict[str, list[tuple[Callable[..., Sequence[port.AdapterEvent]], str | None]]] = {}
        """Arguments that came before their item: OGX does not know the kind of a call at its beginning."""
        self._nameless: list[wire.ResponseItem] = []
        """Complete calls for a chain without an id that an output could name. The finished response may have it."""
        self._unanswered: dict[str, list[str]] = {}
        self._unmatched: list[wire.ResponseItem] = []
        self._finished = False
        """What comes now is of the finished response."""

    @property
    def begun(self) -> bool:
        """Whether any call is announced and not complete."""
        return any(call.arguments is None for call in self._open.values())

    @property
    def any(self) -> bool:
        """Whether the response has a call, besides those of `answered`."""
        return bool(self._ids)

    @property
    def renamed(self) -> dict[str, str]:
        """The backend's ids of the calls whose events have another id, by that."""
        complete = (call for calls in self._of_item.values() for call in calls) if self._chained else ()
        return {
            call.call_id: call.item.call_id for call in complete if call.item.call_id not in (None, "", call.call_id)
        }

    def is_other(self, item: wire.ResponseItem, index: int | None) -> bool:
        """Whether an item of the stream has the id of one that ended, and is another call: its id of the call is new, and so is
        its place or what is called."""
        ended = self._of_item.get(item.key, ())
        return self._is_new(item, ended) and not any(
            call.is_told_by(item) and (index is None or call.index in (None, index)) for call in ended
        )

    def is_more(self, key: str, item: wire.ResponseItem, told: Container[str | None]) -> bool:
        """Whether an item of the finished response is another call than that of the streamed item `key`. `told` are the ids of
        all calls of the finished response: a call that is there under another id than in the stream is the same."""
        ended = self._of_item.get(key, ())
        if not self._is_new(item, ended):
            return False
        same = next((call for call in ended if call.item.call_id not in told and call.is_told_by(item)), None)
        if same is None:
            return key == item.key
        _log.warning("a finished response changes the id of a call; the output of the call goes out under the new id")
        digest = self.digests.pop(same.item.call_id or "", None)
        if digest is not None and item.call_id:
            self.digests[item.call_id] = digest
        same.item = item
        return False

    def _is_new(self, item: wire.ResponseItem, ended: Sequence[_Call]) -> bool:
        """Whether no call has the id that the item gives, although calls of this item have ended."""
        call_id = item.call_id
        if not ended or not ended[-1].item.call_id or not call_id or call_id in self._answered:
            return False
        call = self._of_client.get(call_id)
        return call is None or call.arguments is None

    def add(self, item: wire.ResponseItem, index: int | None) -> Sequence[port.AdapterEvent]:
        key, of_client = item.key, item.type in wire.OPEN_CALLS
        if (
            (key in self._open and not self.is_other(item, index))
            or (not item.name and item.type == "mcp_call")
            or (not item.call_id and of_client)
        ):
            return ()
        if of_client and (item.call_id in self._of_client or item.call_id in self._answered):
            # It names a call again. Nothing is told of it before it is complete.
            return ()
        call = self._open[key] = self._begin(item)
        early = [event for add, given in self._early.pop(key, ()) for event in add(self, key, given)]
        handled = True if item.server else None
        return (port.ToolCallAnnounced(call.call_id, item.tool, handled, item.server), *early)

    def add_arguments(self, key: str, delta: str) -> Sequence[port.AdapterEvent]:
        call = self._open.get(key)
        if call is not None:
            return (port.ToolCallArguments(call.call_id, delta),) if call.arguments is None else ()
        self._early.setdefault(key, []).append((ResponseCalls.add_arguments, delta))
        return ()

    def end_arguments(self, key: str, arguments: str | None) -> Sequence[port.AdapterEvent]:
        """Ends the arguments of a call. From this event on, the backend runs the tool."""
        call = self._open.get(key)
        if call is None:
            self._early.setdefault(key, []).append((ResponseCalls.end_arguments, arguments))
            return ()
        if arguments is None or call.arguments is not None or call.item.type not in wire.SERVER_TOOLS:
            return ()
        call.arguments = arguments
        return (wire.server_call(call.call_id, call.item, arguments),)

    def waits_for_id(self, item: wire.ResponseItem) -> bool:
        """Whether no output could name this complete call. It is kept until the finished response, which may give its id."""
        if not self._chained or item.type not in wire.OPEN_CALLS or item.call_id or item.key in self._open:
            return False
        if not item.id or all(other.id != item.id for other in self._nameless):
            self._nameless.append(item)
        return True

    def check_ids(self) -> None:
        """Raises: AdapterError for a call that a chain waits for, and that no output could name."""
        if self._nameless:
            raise self._failures.error(port.ErrorClass.CONTRACT_BROKEN, "a tool call has no id, and cannot be answered")

    def finish(self, items: Iterable[wire.ResponseItem]) -> None:
        """The response has finished, with these items. Raises: AdapterError for two calls that one output cannot answer."""
        first: dict[str, _Call] = {}
        for item in items:
            if self._chained and item.type in wire.OPEN_CALLS and item.call_id:
                call = first.setdefault(item.call_id, _Call(item.call_id, item, None, _arguments(item)))
                if not call.is_told_by(item):
                    raise self._two_of_one_id()
        self._finished = True

    def end_client_call(self, item: wire.ResponseItem, index: int | None) -> Iterator[port.AdapterEvent]:
        arguments = _arguments(item)
        if self._nameless:
            self._name(item)
        if self._was_answered(item):
            self.told_again = True
            _log.warning("a response reports a call again whose output it was given; the call is not run again")
            return
        call = self._of_client.get(item.call_id or "")
        if call is not None and call.arguments is not None:
            if self._repeats(call, item):
                return
            call = None
        elif call is None:
            begun = self._open.get(item.key)
            call = begun if begun is not None and begun.arguments is None else None
        call = call or self._begin(item)
        call.item, call.index, call.arguments = item, index, arguments
        self._of_item.setdefault(item.key, []).append(call)
        if item.call_id:
            self._of_client.setdefault(item.call_id, call)
            if self._chained:
                self.digests[item.call_id] = _digest(item)
        self.cut = self.cut or item.status == "incomplete"
        yield port.ToolCallReady(call.call_id, item.tool, arguments, provider_id=item.id)
        self._unanswered.setdefault(item.call_id or "", []).append(call.call_id)
        early = next((output for output in self._unmatched if output.call_id == item.call_id), None)
        if early is not None:
            self._unmatched.remove(early)
            yield from self.add_output(early)

    def _was_answered(self, item: wire.ResponseItem) -> bool:
        """Whether the output of this very call went out with the request. Where its digest is not known, its id decides."""
        call_id = item.call_id or ""
        return call_id in self._answered and self._answered[call_id] in (None, _digest(item))

    def _name(self, item: wire.ResponseItem) -> None:
        """This item is a call that came without its id. The finished response may change the id of an item, too."""
        same = [other for other in self._nameless if other.id and other.id == item.id]
        same += [o for o in self._nameless if (o.tool, _arguments(o)) == (item.tool, _arguments(item))]
        if same:
            self._nameless.remove(same[0])

    def add_output(self, item: wire.ResponseItem) -> Iterator[port.AdapterEvent]:
        """The backend answers a call that looked like the client's, perhaps before the end of the call."""
        waiting = self._unanswered.get(item.call_id or "")
        if waiting:
            self.digests.pop(item.call_id or "", None)
            yield port.ToolResultReady(waiting.pop(0), "" if item.output is None else item.output)
        else:
            self._unmatched.append(item)

    def end_server_call(self, item: wire.ResponseItem) -> Iterator[port.AdapterEvent]:
        call = self._open.get(item.key) or self._begin(item)
        arguments, output, error = wire.outcome(item)
        if call.arguments is None:
            call.arguments = arguments
            yield wire.server_call(call.call_id, item, arguments)
        yield port.ToolResultReady(call.call_id, output, error)
        if item.type == "image_generation_call" and item.result:
            yield port.PartReady(Part(raw=item.result, media_type=f"image/{item.output_format or 'png'}"))

    def unmatched_outputs(self) -> Iterator[port.AdapterEvent]:
        for item in self._unmatched:
            _log.warning("a tool output belongs to no call of its response")
            yield port.ToolResultReady(self._unique(item), "" if item.output is None else item.output)

    def _repeats(self, call: _Call, item: wire.ResponseItem) -> bool:
        """Whether this item reports a complete call again. In a chain one output answers an id, so that no other call has it.

        Raises: AdapterError for another call of the stream.
        """
        if call.is_told_by(item):
            return True
        if not self._chained:
            return False
        if not self._finished:
            raise self._two_of_one_id()
        _log.warning("a finished response has other arguments of a call than its stream; those of the stream count")
        return True

    def _two_of_one_id(self) -> port.AdapterError:
        detail = "two calls of a response have one id, and one output cannot answer both"
        return self._failures.error(port.ErrorClass.CONTRACT_BROKEN, detail)

    def _begin(self, item: wire.ResponseItem) -> _Call:
        call = _Call(self._unique(item), item)
        if item.type in wire.OPEN_CALLS and item.call_id:
            self._of_client.setdefault(item.call_id, call)
        return call

    def _unique(self, item: wire.ResponseItem) -> str:
        """The backend's id of the call, unless it gave none or the response has that id already."""
        call_id = item.call_id or item.id or "call"
        if call_id in self._ids or call_id == "call":
            call_id = f"{call_id}_{len(self._ids)}"
        self._ids.add(call_id)
        return call_id


def _arguments(item: wire.ResponseItem) -> str:
    return item.arguments if item.arguments is not None else item.input or ""


def _are_alike(one: str, other: str) -> bool:
    """Whether two arguments are the same, however their JSON is written."""
    if one == other:
        return True
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except (msgspec.DecodeError, RecursionError):
        return False


def _digest(item: wire.ResponseItem) -> str:
    """Of the tool and the arguments: of two calls with one id, a repetition has the same."""
    return blake2s(f"{item.tool}\0{_arguments(item)}".encode(errors="replace"), digest_size=8).hexdigest()
