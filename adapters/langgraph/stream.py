"""The events of a run -> adapter events, without I/O. Law: the messages of the mode `messages-tuple` are the answer, and the
updates of the nodes only tell what is complete; the server's word for the end is the status of the run.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from adapters.http.named_events import ServerEvent
from adapters.langgraph import content, interrupts, wire
from adapters.langgraph.calls import RunCalls
from adapters.langgraph.failures import LangGraphFailures
from adapters.langgraph.interrupts import Asked
from adapters.langgraph.speech import Speech
from adapters.langgraph.state import ThreadState
from adapters.langgraph.turn import Turn
from adapters.langgraph.wire import Interrupt, Message
from gateway.a2a.model import Json, Part
from gateway.ports import adapter as port
from gateway.ports.adapter import AdapterEvent, ErrorClass

_FINISHES = ("finish_reason", "stop_reason", "done_reason")
_WHOLE = frozenset(
    {"stop", "end_turn", "tool_calls", "tool_use", "function_call", "stop_sequence", "completed", "complete", "eos"}
)
"""The words of models for an answer that is whole."""
_BREAKPOINT = Part(text="The agent has stopped, and goes on with the next message.")


class RunParser:
    """The events of one call, which has a run or two. `began` says that those of the present run came from its first on."""

    def __init__(self, failures: LangGraphFailures, key: str, *, approvals: bool, turn: Turn) -> None:
        """`key` is that of the messages in the state of the graph. `approvals` as in `interrupts.read`."""
        self.began = False
        self.run = ""
        self._failures = failures
        self._key = key
        self._approvals = approvals
        self._speech = Speech()
        self._calls = RunCalls(waits=approvals)
        self._waiting_calls = list(self._calls.go_on(turn.goes_on, turn.questions, turn.refused))
        self._asked: dict[str, Interrupt] = {}
        self._stopped = False
        self._heard: set[str] = set()
        self._whole: set[str] = set()
        self._reports: list[dict[str, Json]] = []
        self._finish = ("", "")
        """The id of a message, and why it is not whole."""
        self._last = ""

    @property
    def usage(self) -> Json:
        return wire.total(self._reports)

    @property
    def asks(self) -> bool:
        """Whether the graph has stopped before its end."""
        return bool(self._asked) or self._stopped

    def begin(self, run: str) -> None:
        """The next run of the call."""
        self.began, self.run = False, run

    def receive(self, event: ServerEvent) -> Sequence[AdapterEvent]:
        """Raises: AdapterError when the run has failed, or for an event that the server's description does not allow."""
        name = event.name.partition("|")[0]
        try:
            match name:
                case "messages":
                    return self._message(event.data)
                case "updates":
                    return list(self._updates(event.data))
                case "metadata":
                    return self._begin(event.data)
                case "custom":
                    return self._custom(event.data)
                case "error":
                    raise self._failures.from_run(wire.decode_error(event.data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            what = f"an event {name!r} that cannot be read: {error}"
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, what) from error
        return ()

    def add_whole(self, messages: Iterable[Message], asked: Iterable[Interrupt]) -> Iterator[AdapterEvent]:
        """What the thread holds of the run, where its events are not there any more."""
        yield from self._first_calls()
        for message in messages:
            yield from self._add(message, "")
        for each in asked:
            self._asked[each.id] = each

    def complete(self, handle: str, task: str, unsent: Sequence[dict[str, Json]]) -> Iterator[AdapterEvent]:
        """The end of the call. `task` is that of the request, `unsent` are the messages that the thread has not got."""
        yield from self._first_calls()
        yield from self._speech.close()
        asked = tuple(interrupts.read(each, approvals=self._approvals) for each in self._asked.values())
        if not self.asks:
            yield from self._calls.close()
            finish = self._finish[1] if self._finish[0] == self._last else ""
            yield port.CallCompleted(
                handle, usage=self.usage, finish=finish or None, state=ThreadState(self._last).stored
            )
            return
        state = ThreadState(self._last, task, self.run, asked, self._calls.held, tuple(unsent))
        if any(each.actions for each in asked):
            yield from interrupts.approvals_of(asked, self.run)
            yield port.CallCompleted(handle, usage=self.usage, state=state.stored)
            return
        yield port.CallCompleted(
            handle, port.Ending.INPUT_REQUIRED, self._question(asked), usage=self.usage, state=state.stored
        )

    def rest(self) -> Sequence[AdapterEvent]:
        """What waits in a call that was cut off."""
        return self._speech.close()

    def _question(self, asked: Sequence[Asked]) -> tuple[Part, ...]:
        if not asked:
            return (_BREAKPOINT,)
        return interrupts.question_parts(self._asked[asked[0].id], asked[0])

    def _begin(self, data: bytes) -> Sequence[AdapterEvent]:
        metadata = wire.decode_metadata(data)
        void = self._speech.void() if metadata.attempt > 1 else ()
        self.began = True
        self.run = self.run or metadata.run_id
        return (*void, *self._first_calls())

    def _first_calls(self) -> Sequence[AdapterEvent]:
        first, self._waiting_calls = self._waiting_calls, []
        return first

    def _message(self, data: bytes) -> Sequence[AdapterEvent]:
        message, where = wire.decode_message(data)
        plain = message.content
        if (
            type(plain) is str
            and plain
            and message.id
            and message.type == wire.CHUNK
            and not (message.tool_call_chunks or message.additional_kwargs or message.response_metadata)
            and message.usage_metadata is None
            and message.chunk_position is None
        ):
            # Nearly every event is such a piece.
            self._last = message.id
            return self._speech.add(message.id, where.langgraph_checkpoint_ns, plain)
        return list(self._add(message, where.langgraph_checkpoint_ns))

    def _add(self, message: Message, place: str) -> Iterator[AdapterEvent]:
        key = message.id or ""
        if message.type in wire.TOOL:
            self._last = key or self._last
            failed = message.status == "error"
            name, output = message.name or "", content.output_of(message)
            answer = self._calls.answer(message.tool_call_id or "", name, output, error=failed)
            yield from self._speech.hold(list(answer))
        elif message.type in wire.AI and key not in self._whole:
            self._last = key or self._last
            self._heard.add(key)
            self._count(message, key)
            yield from self._speak(message, key, place)
            if message.type != wire.CHUNK:
                self._whole.add(key)
                yield from self._end(key)
                yield from self._speech.hold(list(self._calls.complete(message.calls)))
            elif message.chunk_position == wire.LAST:
                yield from self._end(key)

    def _speak(self, message: Message, key: str, place: str) -> Iterator[AdapterEvent]:
        if thought := content.reasoning_of(message):
            yield from self._speech.hold((port.ReasoningDelta(thought),))
        if text := content.text_of(message):
            yield from self._speech.add(key, place, text)
        yield from self._speech.hold([port.PartReady(part) for part in content.files_of(message)])
        if message.tool_call_chunks:
            yield from self._speech.hold(list(self._calls.add(key, message.tool_call_chunks)))

    def _end(self, key: str, text: str | None = None) -> Iterator[AdapterEvent]:
        yield from self._speech.end(key, text)
        yield from self._speech.hold(list(self._calls.end(key)))

    def _updates(self, data: bytes) -> Iterator[AdapterEvent]:
        for node, update in wire.decode_object(data).items():
            if node == wire.INTERRUPTS:
                asked = wire.decode_interrupts(update)
                self._stopped = self._stopped or not asked
                self._asked.update({each.id: each for each in asked})
            else:
                for message in wire.added_messages(bytes(update), self._key):
                    yield from self._ended(message)

    def _ended(self, message: Message) -> Iterator[AdapterEvent]:
        """A node has added this message to the state, perhaps with earlier ones. What was not heard is no answer."""
        key = message.id or ""
        if message.type in wire.AI and (key in self._heard or key in self._speech):
            yield from self._end(key, content.text_of(message))
            yield from self._speech.hold(list(self._calls.complete(message.calls)))

    def _custom(self, data: bytes) -> Sequence[AdapterEvent]:
        value = msgspec.json.decode(data)
        return self._speech.hold((port.Progress(value),)) if isinstance(value, str) and value else ()

    def _count(self, message: Message, key: str) -> None:
        if message.usage_metadata:
            self._reports.append(message.usage_metadata)
        told = message.response_metadata or {}
        reasons = [reason for name in _FINISHES if isinstance(reason := told.get(name), str) and reason]
        if reasons and reasons[0].lower() not in _WHOLE:
            self._finish = key, reasons[0]
