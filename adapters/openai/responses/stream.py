"""Events of a Responses stream -> adapter events; no IO. Law: an item decides what its deltas were, its id which deltas
are its own, and an id that ended is a repetition; numbers may have gaps, indexes repeat, names be absent.

Source: OpenAI API description 2.3.0, schema `ResponseStreamEvent`; captures of OGX, agentserver, LiteLLM and others.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar

import msgspec

from adapters.http.failures import Failures
from adapters.http.sse import DONE
from adapters.openai.responses import wire
from adapters.openai.responses.calls import NOTHING_ANSWERED, ResponseCalls
from adapters.openai.responses.continuation import Continuation
from adapters.openai.responses.items import StreamedItems
from adapters.openai.responses.messages import ResponseMessages
from gateway.a2a.model import Json
from gateway.ports import adapter as port
from gateway.ports.conversation import OpaqueItem, ReasoningItem

_log = logging.getLogger(__name__)


class ResponseParser:
    """One response to a request with this `continuation`, which brought the outputs of the calls `answered` (as for
    `ResponseCalls`). `receive`
    takes the data of every event until the parser has `ended`. `usage` is the report of tokens, also of a response that
    failed. `repeated` is the number of events that were taken for repetitions by their number."""

    def __init__(
        self,
        failures: Failures,
        continuation: Continuation,
        answered: Mapping[str, str | None] = NOTHING_ANSWERED,
    ) -> None:
        self.ended = False
        self.usage: Json = None
        self.repeated = 0
        self._failures = failures
        self._continuation = continuation
        self._answered = answered
        self._handle = continuation.handle
        self._started = False
        self._number = 0
        self._latest = b""
        self._reset()

    def _reset(self) -> None:
        """Nothing has come of the response's output."""
        self._last_item: str | None = None
        self._items = StreamedItems()
        self._again = False
        self._summary: tuple[str | None, int] | None = None
        self._messages = ResponseMessages()
        self._calls = ResponseCalls(self._failures, chained=self._continuation.keeps, answered=self._answered)
        self._questions: dict[str, port.ApprovalAsked] = {}
        self._links: set[str] = set()

    def receive(self, data: bytes) -> Sequence[port.AdapterEvent]:
        """Raises: AdapterError when the response failed, or `data` is no event."""
        if data.startswith(wire.REPETITIONS) or data == DONE:
            return ()
        try:
            event = wire.decode_event(data)
            number = event.sequence_number
            if isinstance(number, int):
                if number > self._number or number <= 0:
                    self._number, self._latest = number, data
                elif self._is_repetition(event, number, data):
                    self.repeated += 1
                    return ()
                elif number == self._number:
                    self._latest = data
            if event.type in wire.TEXT_DELTAS:
                return self._messages.add_delta(event)
            read = self._READERS.get(event.type)
            if read is not None:
                return read(self, event)
            if not event.type and event.error is not None:
                raise self._failures.from_event(event.error, handle=self._handle)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._broken(f"an event cannot be read: {error}") from error
        return ()

    def rest(self) -> Sequence[port.AdapterEvent]:
        """The output that came of a response that fails, and that waits for the end of what came before it."""
        return self._messages.rest()

    def cut(self) -> port.AdapterError:
        """The stream ended before the response did."""
        return self._failures.error(
            port.ErrorClass.INTERRUPTED, self._doubted("the stream ended before the response did")
        )

    def _is_repetition(self, event: wire.Event, number: int, data: bytes) -> bool:
        """Of an event whose number does not rise. A state is none, since it tells the same again, and neither is an event
        about an item that the stream has not had: there the numbers begin anew."""
        if event.response or event.type in wire.ENDS:
            return False
        if number == self._number:
            return data == self._latest
        key = event.item_id or (wire.decode_item(event.item).key if event.item else "")
        if not key or key in self._items or key in self._messages:
            return True
        self._number = number
        return False

    def _doubted(self, what: str) -> str:
        if not self.repeated:
            return what
        return f"{what}; {self.repeated} events had a sequence_number that did not rise, and were taken for repetitions"

    # --- the response

    def _opened(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        return self._start(wire.decode_response(event.response))

    def _in_progress(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        """Handles a repeated event. When it follows output, the backend may have been interrupted, and send all output
        again: the next item tells. Source: agentserver 2.3.0."""
        self._again = self._items.any_ended or self._messages.begun or self._calls.begun
        return self._opened(event)

    def _start_over(self, item: wire.ResponseItem, index: int | None) -> Sequence[port.AdapterEvent]:
        """Drops all output when this item, after an interruption, is sent again."""
        again, self._again = self._again, False
        if not again or not self._items.begins_again(item, index):
            return ()
        self._reset()
        return (port.StartedOver(),)

    def _start(self, response: wire.Response) -> Sequence[port.AdapterEvent]:
        if error := self._continuation.mismatch(response, self._failures):
            raise error
        if self._started:
            return ()
        self._started = True
        event = self._continuation.started(response)
        return () if event is None else (event,)

    def _closed(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        response = wire.decode_response(event.response)
        self.usage = response.usage
        finish = self._finish(event, response)
        events = [*self._start(response), *self._finished_items(response), *self._messages.close()]
        self._calls.check_ids()
        if self._calls.told_again and not (self._messages.begun or self._calls.any or self._questions or self._links):
            raise self._broken("a response has nothing but a call whose output it was given")
        events += self._calls.unmatched_outputs()
        if self.repeated:
            _log.warning(self._doubted("a response has ended"))
        if finish == "incomplete" and self._links:
            # The response waits for consent, and is incomplete for that reason. Source: Microsoft's agent framework.
            finish = None
        elif finish is None and self._calls.cut:
            finish = "incomplete"
        self.ended = True
        completed = port.CallCompleted(
            # A response that the backend kept against the request is named, so that it can be deleted there.
            self._continuation.handle_of(response) or (response.id if response.store else None),
            usage=response.usage,
            finish=finish,
            state=self._state(response.agent_session_id),
            stored=response.store,
        )
        return (*events, completed)

    def _state(self, session: str | None) -> Json:
        """None where there is nothing to keep."""
        state: dict[str, Json] = dict(self._continuation.state(self._last_item) or {})
        if session is not None:
            state[wire.SESSION] = session
        if self._calls.digests:
            state[wire.WAITING] = {**self._calls.digests}
        if renamed := self._calls.renamed:
            state[wire.RENAMED] = {**renamed}
        return state or None

    def _finish(self, event: wire.Event, response: wire.Response) -> str | None:
        """None for a complete answer, else why it is not complete. Raises: AdapterError for a response that failed."""
        status = event.type.removeprefix("response.")
        if status == "completed" and response.status is not None:
            status = response.status
        match status:
            case "completed":
                return None
            case "incomplete":
                reason = response.incomplete_details and response.incomplete_details.reason
                return self._failures.detail(reason) if reason else status
            case "failed":
                error = response.error or {"message": "the response failed"}
                raise self._continuation.begun(self._failures.from_event(error, handle=self._handle))
            case "cancelled":
                raise self._failures.error(port.ErrorClass.BACKEND_FAILED, "the backend cancelled the response")
        raise self._broken(f"a response that ended has the status {status!r}")

    def _finished_items(self, response: wire.Response) -> Iterator[port.AdapterEvent]:
        """What the finished response has and the stream had not: whole items, and other texts of messages. A server may
        stream no items; and the end of a call that was cut is often there alone, for which a chain waits for an output."""
        output = response.output or ()
        items = [wire.decode_item(raw) for raw in output]
        calls = {item.call_id for item in items if item.type in wire.OPEN_CALLS}
        self._calls.finish(items)
        for item, raw, key in zip(items, output, self._items.streamed_keys(items), strict=True):
            if key is None or self._calls.is_more(key, item, calls):
                yield from self._item(item, raw, None)
            elif item.type == "message":
                yield from self._messages.repeat(key, item.text)

    def _failed(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        failed = self._failures.from_event(
            event.error or {"code": event.code, "message": event.message}, handle=self._handle
        )
        raise self._continuation.begun(failed) if self._started else failed

    def _broken(self, what: str) -> port.AdapterError:
        return self._failures.error(port.ErrorClass.CONTRACT_BROKEN, self._doubted(what))

    # --- deltas

    def _text_done(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        return self._messages.add_text(event)

    def _reasoning_delta(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        delta = event.delta
        if not isinstance(delta, str) or not delta:
            return ()
        if event.summary_index:
            at = (event.item_id, event.summary_index)
            if at != self._summary:
                self._summary = at
                delta = f"\n\n{delta}"
        return self._messages.hold((port.ReasoningDelta(delta),), event.index)

    def _arguments_delta(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        delta = event.delta
        if not isinstance(delta, str) or not delta:
            return ()
        return self._messages.hold(self._calls.add_arguments(event.item_id or "", delta), event.index)

    def _arguments_done(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        return self._messages.hold(self._calls.end_arguments(event.item_id or "", event.arguments), event.index)

    # --- items

    def _item_added(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        item, index = wire.decode_item(event.item), event.index
        over = self._start_over(item, index)
        self._items.begin(item, index)
        if self._has_ended(item, index):
            return over
        if item.type == "message":
            self._messages.announce(item, index)
        elif item.type in wire.CALLS:
            return (*over, *self._messages.hold(self._calls.add(item, index), index))
        elif item.type == wire.CONSENT and item.consent_link:
            return (*over, *self._messages.hold(tuple(self._consent(item)), index))
        return over

    def _item_done(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        item, index = wire.decode_item(event.item), event.index
        # The end of an item that has begun shows that the output goes on.
        over = () if self._items.is_open(item) else self._start_over(item, index)
        self._again = False
        self._items.begin(item, index)
        if self._has_ended(item, index):
            return self._repeated_item(item)
        return (*over, *self._item(item, event.item, index))

    def _has_ended(self, item: wire.ResponseItem, index: int | None) -> bool:
        return self._items.has_ended(item) and not self._calls.is_other(item, index)

    def _repeated_item(self, item: wire.ResponseItem) -> Sequence[port.AdapterEvent]:
        if item.type == "mcp_approval_request" and self._approval(item) != self._questions[item.key]:
            raise self._broken("a question for approval has the id of another")
        return self._messages.repeat(item.key, item.text) if item.type == "message" else ()

    def _item(self, item: wire.ResponseItem, raw: msgspec.Raw, index: int | None) -> Sequence[port.AdapterEvent]:
        if self._calls.waits_for_id(item):
            return ()
        self._items.end(item)
        if item.type != wire.CONSENT:
            self._last_item = item.id or self._last_item
        if item.type == "message":
            return self._messages.end(item, raw, index)
        return self._messages.hold(tuple(self._other_item(item, raw, index)), index)

    def _other_item(self, item: wire.ResponseItem, raw: msgspec.Raw, index: int | None) -> Iterator[port.AdapterEvent]:
        match item.type:
            case wire.CONSENT:
                yield from self._consent(item)
            case "reasoning":
                name, payload = wire.replay(raw)
                yield port.ItemReady(ReasoningItem(item.reasoning, payload), name)
            case "mcp_list_tools":
                pass
            case "mcp_approval_request":
                asked = self._questions[item.key] = self._approval(item)
                yield asked
            case kind if kind in wire.OPEN_CALLS:
                yield from self._calls.end_client_call(item, index)
            case kind if kind in wire.OPEN_CALL_OUTPUTS:
                yield from self._calls.add_output(item)
            case kind if kind in wire.SERVER_TOOLS:
                yield from self._calls.end_server_call(item)
            case _:
                name, payload = wire.replay(raw)
                yield port.ItemReady(OpaqueItem(item.type, payload, item.type == wire.COMPACTION), name)

    def _approval(self, item: wire.ResponseItem) -> port.ApprovalAsked:
        """The decision is sent with the id of the question, so the id cannot be made up."""
        if not item.id or not item.name:
            raise self._broken("a question for approval has no id, or names no tool")
        return port.ApprovalAsked(item.id, item.name, item.arguments or "", item.server_label or "", item.id)

    def _consent(self, item: wire.ResponseItem) -> Iterator[port.ConsentAsked]:
        """Complete with its first event, which is the only one on some servers. Nothing of it is sent back."""
        if not item.consent_link:
            raise self._broken("consent was asked for without a link")
        if item.consent_link not in self._links:
            self._links.add(item.consent_link)
            yield port.ConsentAsked(item.consent_link, f"mcp:{item.server_label}" if item.server_label else "")

    _READERS: ClassVar[Mapping[str, Callable[["ResponseParser", wire.Event], Sequence[port.AdapterEvent]]]] = {
        "response.output_text.done": _text_done,
        "response.refusal.done": _text_done,
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
