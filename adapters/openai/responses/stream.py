"""Events of a Responses stream -> adapter events; no IO. Law: the item decides what its deltas were, its id whose they
are; numbers may have gaps, indexes repeat, names be absent.

Source: OpenAI API description 2.3.0, schema `ResponseStreamEvent`; captures of OGX, agentserver, LiteLLM and others.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from adapters.http.failures import Failures
from adapters.http.sse import DONE
from adapters.openai.responses.handles import Continuing, Echo
from adapters.openai.responses.items import (
    CALLS,
    COMPACTION,
    CONSENT,
    OPEN_CALL_OUTPUTS,
    OPEN_CALLS,
    SERVER_TOOLS,
    ResponseItem,
    handled,
    outcome,
    verbatim,
)
from gateway.a2a.model import Json, Part
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    ApprovalAsked,
    CallCompleted,
    CallStarted,
    ConsentAsked,
    ErrorClass,
    ItemReady,
    PartReady,
    Progress,
    ReasoningDelta,
    StartedOver,
    TextDelta,
    ToolCallAnnounced,
    ToolCallArguments,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import OpaqueItem, ReasoningItem

_log = logging.getLogger(__name__)

# Known by how they begin, without parsing: most only repeat, as a whole, what came before in pieces.
_TYPE_FIRST = b'{"type":"'
_SKIPPED = frozenset(
    {
        b"response.content_part.added",
        b"response.content_part.done",
        b"response.output_text.done",
        b"response.output_text.annotation.added",
        b"response.refusal.done",
        b"response.reasoning_summary_part.added",
        b"response.reasoning_summary_part.done",
        b"response.reasoning_summary_text.done",
        b"response.reasoning_text.done",
        b"response.image_generation_call.partial_image",
        b"response.code_interpreter_call_code.delta",
        b"response.code_interpreter_call_code.done",
        b"response.function_call_arguments.done",
    }
)


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    sequence_number: Json = None
    item_id: str | None = None
    delta: Json = None
    summary_index: int | None = None
    arguments: str | None = None
    item: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()
    error: Json = None
    code: Json = None
    message: Json = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(Echo):
    status: str | None = None
    store: bool | None = None
    usage: Json = None
    error: Json = None
    incomplete_details: _Incomplete | None = None
    output: list[msgspec.Raw] | None = None


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_response = msgspec.json.Decoder(_Response).decode
_decode_item = msgspec.json.Decoder(ResponseItem).decode


@dataclass(slots=True)
class _Call:
    """A tool call that is not through; `item` is the first copy that came of it."""

    call_id: str
    item: ResponseItem
    ready: bool = False


@dataclass(slots=True)
class _Early:
    """What was said of a tool call before its item: OGX does not know yet what it will be."""

    arguments: list[str] = field(default_factory=list)
    whole: str | None = None


class Reading:
    """One response as it comes in, of a request that was `continuing`. Feed it the data of every event until it has
    `ended`."""

    def __init__(self, failures: Failures, continuing: Continuing) -> None:
        self.ended = False
        self._failures = failures
        self._continuing = continuing
        self._handle = continuing.handle
        self._started = continuing.announced
        self._last_item: str | None = None
        self._number = 0
        self._items_done = 0
        self._text: list[str] = []
        self._asides: set[str] = set()
        self._summary: tuple[str | None, int] | None = None
        self._calls: dict[str, _Call] = {}
        self._call_ids: set[str] = set()
        self._links: set[str] = set()
        self._unanswered: dict[str, list[str]] = {}
        self._early: dict[str, _Early] = {}
        self._unclaimed: list[ResponseItem] = []

    def receive(self, data: bytes) -> Sequence[AdapterEvent]:
        """Raises: AdapterError when the response failed, or what came is no event."""
        if data.startswith(_TYPE_FIRST) and data[9 : data.find(b'"', 9)] in _SKIPPED:
            return ()
        if data == DONE:
            return ()
        try:
            event = _decode_event(data)
            number = event.sequence_number
            if isinstance(number, int):
                if 0 < number <= self._number:
                    return ()  # said before
                self._number = number
            read = self._READERS.get(event.type)
            if read is not None:
                return read(self, event)
            if not event.type and event.error is not None:
                raise self._failures.of_event(event.error, handle=self._handle)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._broken(f"an event cannot be read: {error}") from error
        return ()

    # --- the response

    def _opened(self, event: _Event) -> Sequence[AdapterEvent]:
        return self._start(_decode_response(event.response))

    def _at_work(self, event: _Event) -> Sequence[AdapterEvent]:
        """In the midst of it: the backend was interrupted, and says all of it again. Source: agentserver 2.3.0."""
        started = self._opened(event)
        if not (self._text or self._items_done or self._calls):
            return started
        self._begin_anew()
        return (*started, StartedOver())

    def _begin_anew(self) -> None:
        self._last_item, self._items_done, self._summary = None, 0, None
        self._text.clear()
        for known in (self._asides, self._call_ids, self._links):
            known.clear()
        self._calls.clear()
        self._unanswered.clear()
        self._early.clear()
        self._unclaimed.clear()

    def _start(self, response: _Response) -> Sequence[AdapterEvent]:
        if error := self._continuing.contradicts(response, self._failures):
            raise error
        if self._started:
            return ()
        self._started = True
        return (CallStarted(self._continuing.handle_of(response)),)

    def _closed(self, event: _Event) -> Sequence[AdapterEvent]:
        response = _decode_response(event.response)
        how = event.type.removeprefix("response.")
        if how == "completed" and response.status is not None:
            how = response.status
        match how:
            case "completed":
                finish = None
            case "incomplete":
                finish = (response.incomplete_details and response.incomplete_details.reason) or how
            case "failed":
                error = response.error or {"message": "the response failed"}
                raise self._failures.of_event(error, handle=self._handle)
            case "cancelled":
                raise self._failures.error(ErrorClass.BACKEND_FAILED, "the backend cancelled the response")
            case _:
                raise self._broken(f"a response that ended has the status {how!r}")
        events = [*self._start(response), *self._only_in_the_end(response), *self._answers_to_nothing()]
        self.ended = True
        completed = CallCompleted(
            # One that the backend kept although it should not has to be named, to be deleted there.
            self._continuing.handle_of(response) or (response.id if response.store else None),
            usage=response.usage,
            # One that waits for consent may be incomplete for no other reason. Source: Microsoft's agent framework.
            finish=None if finish == "incomplete" and self._links else finish,
            state=self._continuing.state(self._last_item),
            stored=response.store,
        )
        return (*events, completed)

    def _only_in_the_end(self, response: _Response) -> Iterator[AdapterEvent]:
        """A server that streams no items shows them in the finished response alone, as it does the end of a call that
        was cut: its chain waits for an output of that, too."""
        if self._items_done and not self._calls:
            return
        for raw in response.output or ():
            item = _decode_item(raw)
            if not self._items_done or (item.type in OPEN_CALLS and _key(item) in self._calls):
                yield from self._item(raw)

    def _answers_to_nothing(self) -> Iterator[AdapterEvent]:
        for item in self._unclaimed:
            _log.warning("a tool output belongs to no call of its response")
            yield ToolResultReady(self._new_call_id(item), "" if item.output is None else item.output)

    def _failed(self, event: _Event) -> Sequence[AdapterEvent]:
        error = event.error or {"code": event.code, "message": event.message}
        raise self._failures.of_event(error, handle=self._handle)

    def _broken(self, what: str) -> AdapterError:
        return self._failures.error(ErrorClass.CONTRACT_BROKEN, what)

    # --- deltas

    def _said(self, event: _Event) -> Sequence[AdapterEvent]:
        delta = event.delta
        if not isinstance(delta, str) or not delta or event.item_id in self._asides:
            return ()
        self._text.append(delta)
        return (TextDelta(delta),)

    def _thought(self, event: _Event) -> Sequence[AdapterEvent]:
        delta = event.delta
        if not isinstance(delta, str) or not delta:
            return ()
        if event.summary_index:
            at = (event.item_id, event.summary_index)
            if at != self._summary:
                self._summary = at
                delta = f"\n\n{delta}"
        return (ReasoningDelta(delta),)

    def _arguments(self, event: _Event) -> Sequence[AdapterEvent]:
        if not isinstance(event.delta, str) or not event.delta:
            return ()
        call = self._calls.get(event.item_id or "")
        if call is None:
            self._early.setdefault(event.item_id or "", _Early()).arguments.append(event.delta)
            return ()
        return (ToolCallArguments(call.call_id, event.delta),)

    def _all_arguments(self, event: _Event) -> Sequence[AdapterEvent]:
        """The backend runs the tool from here on."""
        call = self._calls.get(event.item_id or "")
        if call is None:
            self._early.setdefault(event.item_id or "", _Early()).whole = event.arguments
            return ()
        return self._runs(call, event.arguments)

    def _runs(self, call: _Call, arguments: str | None) -> Sequence[AdapterEvent]:
        if arguments is None or call.ready or call.item.type not in SERVER_TOOLS:
            return ()
        call.ready = True
        return (handled(call.call_id, call.item, arguments),)

    # --- items

    def _added(self, event: _Event) -> Sequence[AdapterEvent]:
        item = _decode_item(event.item)
        if item.type == CONSENT and item.consent_link:
            return tuple(self._consent(item))
        if item.type == "message" and item.phase == "commentary" and item.id:
            self._asides.add(item.id)
        if item.type not in CALLS or _key(item) in self._calls or (item.type == "mcp_call" and not item.name):
            return ()
        call = self._calls[_key(item)] = _Call(self._new_call_id(item), item)
        early = self._early.pop(_key(item), None) or _Early()
        deltas = tuple(ToolCallArguments(call.call_id, delta) for delta in early.arguments)
        return (ToolCallAnnounced(call.call_id, item.tool), *deltas, *self._runs(call, early.whole))

    def _done(self, event: _Event) -> Sequence[AdapterEvent]:
        self._items_done += 1
        return tuple(self._item(event.item))

    def _item(self, raw: msgspec.Raw) -> Iterator[AdapterEvent]:
        item = _decode_item(raw)
        if item.type == CONSENT:
            yield from self._consent(item)
            return
        self._last_item = item.id or self._last_item
        match item.type:
            case "message":
                yield from self._message(item, raw)
            case "reasoning":
                came = verbatim(raw)
                yield ItemReady(ReasoningItem(item.thought, came.payload), came.id)
            case "mcp_list_tools":
                pass
            case "mcp_approval_request":
                yield self._question(item)
            case kind if kind in OPEN_CALLS:
                yield from self._open_call(item)
            case kind if kind in OPEN_CALL_OUTPUTS:
                yield from self._output(item)
            case kind if kind in SERVER_TOOLS:
                yield from self._server_tool(item)
            case _:
                came = verbatim(raw)
                yield ItemReady(OpaqueItem(item.type, came.payload, item.type == COMPACTION), came.id)

    def _message(self, item: ResponseItem, raw: msgspec.Raw) -> Iterator[AdapterEvent]:
        if item.phase == "commentary":
            came = verbatim(raw)
            yield Progress(item.text)
            yield ItemReady(OpaqueItem(item.type, came.payload), came.id)
            return
        streamed = "".join(self._text)
        self._text.clear()
        if item.text.startswith(streamed):
            if rest := item.text[len(streamed) :]:
                yield TextDelta(rest)
        elif streamed.startswith(item.text):
            self._text.append(streamed[len(item.text) :])
        else:
            _log.warning("a finished message is not what was streamed of it")

    def _open_call(self, item: ResponseItem) -> Iterator[AdapterEvent]:
        call = self._calls.pop(_key(item), None) or _Call(self._new_call_id(item), item)
        arguments = item.arguments if item.arguments is not None else item.input or ""
        if item.status == "incomplete" and not arguments.strip():
            arguments = "{"  # cut before they began; blank ones would be taken for none, and the tool would run
        yield ToolCallReady(call.call_id, item.tool, arguments, provider_id=item.id)
        self._unanswered.setdefault(item.call_id or "", []).append(call.call_id)
        early = next((output for output in self._unclaimed if output.call_id == item.call_id), None)
        if early is not None:
            self._unclaimed.remove(early)
            yield from self._output(early)

    def _output(self, item: ResponseItem) -> Iterator[AdapterEvent]:
        """The backend answered a call that looked like the client's; the answer may come before the call is through."""
        waiting = self._unanswered.get(item.call_id or "")
        if waiting:
            yield ToolResultReady(waiting.pop(0), "" if item.output is None else item.output)
        else:
            self._unclaimed.append(item)

    def _server_tool(self, item: ResponseItem) -> Iterator[AdapterEvent]:
        call = self._calls.pop(_key(item), None) or _Call(self._new_call_id(item), item)
        came = outcome(item)
        if not call.ready:
            yield handled(call.call_id, item, came.arguments)
        yield ToolResultReady(call.call_id, came.output, came.error)
        if item.type == "image_generation_call" and item.result:
            yield PartReady(Part(raw=item.result, media_type=f"image/{item.output_format or 'png'}"))

    def _question(self, item: ResponseItem) -> ApprovalAsked:
        """Its answer is sent with this very id, so there is no making up another."""
        if not item.id or not item.name or item.id in self._call_ids:
            raise self._broken("a question for approval has no id of its own, or names no tool")
        self._call_ids.add(item.id)
        return ApprovalAsked(item.id, item.name, item.arguments or "", item.server_label or "", item.id)

    def _consent(self, item: ResponseItem) -> Iterator[ConsentAsked]:
        """It comes whole with its announcement, and some servers say no more of it. Nothing of it is sent back."""
        if not item.consent_link:
            raise self._broken("consent was asked for without a link")
        if item.consent_link not in self._links:
            self._links.add(item.consent_link)
            yield ConsentAsked(item.consent_link, f"mcp:{item.server_label}" if item.server_label else "")

    def _new_call_id(self, item: ResponseItem) -> str:
        """The backend's id of the call, unless this response had that one before, or none is given."""
        call_id = item.call_id or item.id or "call"
        if call_id in self._call_ids or call_id == "call":
            call_id = f"{call_id}_{len(self._call_ids)}"
        self._call_ids.add(call_id)
        return call_id

    _READERS: ClassVar[Mapping[str, Callable[["Reading", _Event], Sequence[AdapterEvent]]]] = {
        "response.output_text.delta": _said,
        "response.refusal.delta": _said,
        "response.reasoning_summary_text.delta": _thought,
        "response.reasoning_text.delta": _thought,
        "response.reasoning.delta": _thought,
        "response.function_call_arguments.delta": _arguments,
        "response.custom_tool_call_input.delta": _arguments,
        "response.mcp_call_arguments.delta": _arguments,
        "response.mcp_call.arguments.delta": _arguments,
        "response.mcp_call_arguments.done": _all_arguments,
        "response.mcp_call.arguments.done": _all_arguments,
        "response.output_item.added": _added,
        "response.output_item.done": _done,
        "response.created": _opened,
        "response.queued": _opened,
        "response.in_progress": _at_work,
        "response.completed": _closed,
        "response.incomplete": _closed,
        "response.failed": _closed,
        "response.cancelled": _closed,
        "error": _failed,
    }


def _key(item: ResponseItem) -> str:
    return item.id or item.call_id or ""
