"""Events of a Responses stream -> adapter events; no IO. Law: an item decides what its deltas were, its id which deltas
are its own; numbers may have gaps, indexes repeat, names be absent.

Source: OpenAI API description 2.3.0, schema `ResponseStreamEvent`; captures of OGX, agentserver, LiteLLM and others.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar

import msgspec

from adapters.http.failures import Failures
from adapters.http.sse import DONE
from adapters.openai.responses import wire
from adapters.openai.responses.calls import ResponseCalls
from adapters.openai.responses.continuation import Continuation
from gateway.a2a.model import Json
from gateway.ports import adapter as port
from gateway.ports.conversation import OpaqueItem, ReasoningItem

_log = logging.getLogger(__name__)


class ResponseParser:
    """One response to a request with this `continuation`. `receive` takes the data of every event until the parser has
    `ended`. `usage` is the report of tokens, also of a response that failed."""

    def __init__(self, failures: Failures, continuation: Continuation) -> None:
        self.ended = False
        self.usage: Json = None
        self._failures = failures
        self._continuation = continuation
        self._handle = continuation.handle
        self._started = continuation.announced
        self._number = 0
        self._reset()

    def _reset(self) -> None:
        """Nothing has come of the response's output."""
        self._last_item: str | None = None
        self._items_done = 0
        self._text: list[str] = []
        self._commentary: set[str] = set()
        self._summary: tuple[str | None, int] | None = None
        self._calls = ResponseCalls()
        self._links: set[str] = set()

    def receive(self, data: bytes) -> Sequence[port.AdapterEvent]:
        """Raises: AdapterError when the response failed, or `data` is no event."""
        if (data.startswith(wire.TYPE_FIRST) and data[9 : data.find(b'"', 9)] in wire.REPETITIONS) or data == DONE:
            return ()
        try:
            event = wire.decode_event(data)
            number = event.sequence_number
            if isinstance(number, int):
                if 0 < number <= self._number:
                    return ()  # a repetition
                self._number = number
            read = self._READERS.get(event.type)
            if read is not None:
                return read(self, event)
            if not event.type and event.error is not None:
                raise self._failures.from_event(event.error, handle=self._handle)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._broken(f"an event cannot be read: {error}") from error
        return ()

    # --- the response

    def _opened(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        return self._start(wire.decode_response(event.response))

    def _in_progress(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        """Handles a repeated event. When it follows output, the backend was interrupted and sends all output again.
        Source: agentserver 2.3.0."""
        started = self._opened(event)
        if not (self._text or self._items_done or self._calls.open):
            return started
        self._reset()
        return (*started, port.StartedOver())

    def _start(self, response: wire.Response) -> Sequence[port.AdapterEvent]:
        if error := self._continuation.mismatch(response, self._failures):
            raise error
        if self._started:
            return ()
        self._started = True
        return (port.CallStarted(self._continuation.handle_of(response)),)

    def _closed(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        response = wire.decode_response(event.response)
        self.usage = response.usage
        finish = self._finish(event, response)
        events = [*self._start(response), *self._unstreamed_items(response), *self._calls.unmatched_outputs()]
        self.ended = True
        completed = port.CallCompleted(
            # A response that the backend kept against the request is named, so that it can be deleted there.
            self._continuation.handle_of(response) or (response.id if response.store else None),
            usage=response.usage,
            # A response that waits for consent is incomplete for that reason. Source: Microsoft's agent framework.
            finish=None if finish == "incomplete" and self._links else finish,
            state=self._continuation.state(self._last_item),
            stored=response.store,
        )
        return (*events, completed)

    def _finish(self, event: wire.Event, response: wire.Response) -> str | None:
        """None for a complete answer, else why it is not complete. Raises: AdapterError for a response that failed."""
        status = event.type.removeprefix("response.")
        if status == "completed" and response.status is not None:
            status = response.status
        match status:
            case "completed":
                return None
            case "incomplete":
                return (response.incomplete_details and response.incomplete_details.reason) or status
            case "failed":
                error = response.error or {"message": "the response failed"}
                raise self._failures.from_event(error, handle=self._handle)
            case "cancelled":
                raise self._failures.error(port.ErrorClass.BACKEND_FAILED, "the backend cancelled the response")
        raise self._broken(f"a response that ended has the status {status!r}")

    def _unstreamed_items(self, response: wire.Response) -> Iterator[port.AdapterEvent]:
        """A server that streams no items has them in the finished response only; so has every server the end of a call
        that was cut, for which its chain waits for an output, too."""
        if self._items_done and not self._calls.open:
            return
        for raw in response.output or ():
            item = wire.decode_item(raw)
            if not self._items_done or (item.type in wire.OPEN_CALLS and item.key in self._calls.open):
                yield from self._item(raw)

    def _failed(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        error = event.error or {"code": event.code, "message": event.message}
        raise self._failures.from_event(error, handle=self._handle)

    def _broken(self, what: str) -> port.AdapterError:
        return self._failures.error(port.ErrorClass.CONTRACT_BROKEN, what)

    # --- deltas

    def _text_delta(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        delta = event.delta
        if not isinstance(delta, str) or not delta or event.item_id in self._commentary:
            return ()
        self._text.append(delta)
        return (port.TextDelta(delta),)

    def _reasoning_delta(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        delta = event.delta
        if not isinstance(delta, str) or not delta:
            return ()
        if event.summary_index:
            at = (event.item_id, event.summary_index)
            if at != self._summary:
                self._summary = at
                delta = f"\n\n{delta}"
        return (port.ReasoningDelta(delta),)

    def _arguments_delta(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        delta = event.delta
        return self._calls.add_arguments(event.item_id or "", delta) if isinstance(delta, str) and delta else ()

    def _arguments_done(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        return self._calls.end_arguments(event.item_id or "", event.arguments)

    # --- items

    def _item_added(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        item = wire.decode_item(event.item)
        if item.type == wire.CONSENT and item.consent_link:
            return tuple(self._consent(item))
        if item.type == "message" and item.phase == "commentary" and item.id:
            self._commentary.add(item.id)
        return self._calls.add(item) if item.type in wire.CALLS else ()

    def _item_done(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        self._items_done += 1
        return tuple(self._item(event.item))

    def _item(self, raw: msgspec.Raw) -> Iterator[port.AdapterEvent]:
        item = wire.decode_item(raw)
        if item.type == wire.CONSENT:
            yield from self._consent(item)
            return
        self._last_item = item.id or self._last_item
        match item.type:
            case "message":
                yield from self._message(item, raw)
            case "reasoning":
                name, payload = wire.replay(raw)
                yield port.ItemReady(ReasoningItem(item.reasoning, payload), name)
            case "mcp_list_tools":
                pass
            case "mcp_approval_request":
                yield self._approval(item)
            case kind if kind in wire.OPEN_CALLS:
                yield from self._calls.end_client_call(item)
            case kind if kind in wire.OPEN_CALL_OUTPUTS:
                yield from self._calls.add_output(item)
            case kind if kind in wire.SERVER_TOOLS:
                yield from self._calls.end_server_call(item)
            case _:
                name, payload = wire.replay(raw)
                yield port.ItemReady(OpaqueItem(item.type, payload, item.type == wire.COMPACTION), name)

    def _message(self, item: wire.ResponseItem, raw: msgspec.Raw) -> Iterator[port.AdapterEvent]:
        if item.phase == "commentary":
            name, payload = wire.replay(raw)
            yield port.Progress(item.text)
            yield port.ItemReady(OpaqueItem(item.type, payload), name)
            return
        streamed = "".join(self._text)
        self._text.clear()
        if item.text.startswith(streamed):
            if rest := item.text[len(streamed) :]:
                yield port.TextDelta(rest)
        elif streamed.startswith(item.text):
            self._text.append(streamed[len(item.text) :])
        else:
            _log.warning("a finished message is not what was streamed of it")

    def _approval(self, item: wire.ResponseItem) -> port.ApprovalAsked:
        """The decision is sent with the id of the question, so the id cannot be made up."""
        if not item.id or not item.name or item.id in self._calls.ids:
            raise self._broken("a question for approval has no id of its own, or names no tool")
        self._calls.ids.add(item.id)
        return port.ApprovalAsked(item.id, item.name, item.arguments or "", item.server_label or "", item.id)

    def _consent(self, item: wire.ResponseItem) -> Iterator[port.ConsentAsked]:
        """Complete with its first event, which is the only one on some servers. Nothing of it is sent back."""
        if not item.consent_link:
            raise self._broken("consent was asked for without a link")
        if item.consent_link not in self._links:
            self._links.add(item.consent_link)
            yield port.ConsentAsked(item.consent_link, f"mcp:{item.server_label}" if item.server_label else "")

    _READERS: ClassVar[Mapping[str, Callable[["ResponseParser", wire.Event], Sequence[port.AdapterEvent]]]] = {
        "response.output_text.delta": _text_delta,
        "response.refusal.delta": _text_delta,
        "response.reasoning_summary_text.delta": _reasoning_delta,
        "response.reasoning_text.delta": _reasoning_delta,
        "response.reasoning.delta": _reasoning_delta,
        "response.function_call_arguments.delta": _arguments_delta,
        "response.custom_tool_call_input.delta": _arguments_delta,
        "response.mcp_call_arguments.delta": _arguments_delta,
        "response.mcp_call.arguments.delta": _arguments_delta,
        "response.mcp_call_arguments.done": _arguments_done,
        "response.mcp_call.arguments.done": _arguments_done,
        "response.output_item.added": _item_added,
        "response.output_item.done": _item_done,
        "response.created": _opened,
        "response.queued": _opened,
        "response.in_progress": _in_progress,
        "response.completed": _closed,
        "response.incomplete": _closed,
        "response.failed": _closed,
        "response.cancelled": _closed,
        "error": _failed,
    }
