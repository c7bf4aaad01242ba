"""Events of a run -> adapter events; no IO. Law: the name of an event says what its data is, and only a run that has ended or
waits ends a call.

Source: OpenAI API description 2.3.0, schema `AssistantStreamEvent`; azure-ai-agents 1.1.0, `AgentStreamEvent`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from adapters.assistants import wire
from adapters.assistants.failures import ThreadFailures
from adapters.assistants.position import LastCall, Position
from adapters.assistants.tool_calls import RunCalls
from adapters.http.named_events import ServerEvent
from gateway.a2a.model import Json, Part
from gateway.ports import adapter as port

_FINISHES = {"max_completion_tokens": "max_output_tokens"}
"""Words for the end of an answer that callers know by another name."""


class FileMade(msgspec.Struct, frozen=True):
    """A file of the answer that is still at the service."""

    id: str


class Cited(msgspec.Struct, frozen=True):
    """What the marks in a message stand for."""

    annotations: tuple[wire.Annotation, ...]


Told: TypeAlias = port.AdapterEvent | FileMade | Cited


def citations(annotations: Sequence[wire.Annotation], names: Mapping[str, str]) -> Part:
    """What the marks of a message stand for: a file by its name, of those in `names`, or an address."""
    cited: list[Json] = []
    for annotation in annotations:
        if annotation.file_citation is not None:
            source: dict[str, Json] = {"file": names.get(annotation.file_citation.file_id or "", "")}
        else:
            link = annotation.url_citation or wire.Link()
            source = {"url": link.url} | ({"title": link.title} if link.title else {})
        cited.append({"text": annotation.text or ""} | source)
    return Part(data={"citations": cited}, media_type="application/json")


class RunParser:
    """The events of one call, which begins a run or goes on `after` a place at which a run waited. `receive` takes every event
    until the parser has `ended`."""

    def __init__(self, failures: ThreadFailures, handle: str, after: Position | None = None) -> None:
        self.ended = False
        self._failures = failures
        self._handle = handle
        self._after = after
        self._begun = False
        self._step = ""
        self._calls = RunCalls(after.step if after is not None else "")
        self._open: dict[str, list[str]] = {}
        self._places: dict[str, int] = {}
        self._closed: set[str] = set()

    def receive(self, event: ServerEvent) -> Sequence[Told]:
        """Raises: AdapterError when the run failed, or `event` is none."""
        kind, _, change = event.name.rpartition(".")
        try:
            match kind:
                case "thread.run":
                    return tuple(self._run(wire.decode_run(event.data)))
                case "thread.run.step" if change == "delta":
                    return tuple(self._step_delta(wire.decode_step_delta(event.data)))
                case "thread.run.step":
                    return tuple(self.step(wire.decode_step(event.data)))
                case "thread.message" if change == "delta":
                    return tuple(self._message_delta(wire.decode_message_delta(event.data)))
                case "thread.message" if change in ("completed", "incomplete"):
                    return tuple(self.message(wire.decode_message(event.data)))
                case "" if change == "error":
                    raise self._error(msgspec.json.decode(event.data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._broken(f"an event {event.name!r} cannot be read: {error}") from error
        return ()

    def message(self, message: wire.Message) -> Iterator[Told]:
        """A message that is whole."""
        if message.role != "assistant" or message.id in self._closed:
            return
        yield from self._end_message(message.id, message.text)
        for content in message.content or ():
            if content.image_file is not None and content.image_file.file_id:
                yield FileMade(content.image_file.file_id)
            elif content.image_url is not None and content.image_url.url:
                yield port.PartReady(Part(url=content.image_url.url))
        paths = (a.file_path.file_id for a in message.annotations if a.file_path is not None)
        yield from (FileMade(name) for name in dict.fromkeys(paths) if name)
        cited = tuple(a for a in message.annotations if a.file_citation is not None or a.url_citation is not None)
        if cited:
            yield Cited(cited)

    def step(self, step: wire.Step) -> Iterator[port.AdapterEvent]:
        """A step, which may go on."""
        if step.type == "tool_calls":
            self._step = step.id
            if step.status != "in_progress":
                yield from self._calls.done(step)

    def end(self, run: wire.Run) -> Iterator[port.AdapterEvent]:
        """A run that works no more. Raises: AdapterError for one that failed."""
        if not run.is_answered:
            raise self._failures.of_run(run.status or "over", run.last_error, run.usage)
        for name in tuple(self._open):
            yield from self._end_message(name, "")
        self.ended = True
        if run.status == wire.WAITING:
            yield from self._waiting(run)
            # The report of tokens is that of the whole run, and comes again with its end.
            yield port.CallCompleted(self._handle, state=LastCall(Position(run.id, self._step), waits=True).state)
            return
        yield port.CallCompleted(
            self._handle, usage=run.usage, finish=self._finish(run), state=LastCall(Position(run.id), waits=False).state
        )

    def cut(self) -> port.AdapterError:
        """The stream ended before the run did."""
        return self._failures.error(port.ErrorClass.INTERRUPTED, "the stream ended before the run did")

    def accepted(self) -> Iterator[port.CallStarted]:
        """The service has taken the request. A new run has its name from its first event."""
        if self._after is not None:
            yield from self._begin(self._after.name)

    def _begin(self, name: str) -> Iterator[port.CallStarted]:
        if not self._begun:
            self._begun = True
            yield port.CallStarted(self._handle, name)

    def _run(self, run: wire.Run) -> Iterator[port.AdapterEvent]:
        yield from self._begin(run.id)
        if run.status not in wire.ACTIVE:
            yield from self.end(run)

    def _waiting(self, run: wire.Run) -> Iterator[port.AdapterEvent]:
        calls = run.required_action.calls if run.required_action is not None else []
        if not calls:
            raise self._broken("a run waits for nothing")
        try:
            yield from self._calls.waiting(calls)
        except ValueError as error:
            raise self._broken(f"{error}, which no caller can answer") from error

    def _finish(self, run: wire.Run) -> str | None:
        if run.status == "completed":
            return None
        reason = run.incomplete_details.reason if run.incomplete_details is not None else None
        return _FINISHES.get(reason or "", self._failures.detail(reason or "incomplete"))

    def _step_delta(self, delta: wire.StepDelta) -> Iterator[port.AdapterEvent]:
        for call in delta.calls:
            yield from self._calls.delta(delta.id, call)

    def _message_delta(self, delta: wire.MessageDelta) -> Iterator[port.AdapterEvent]:
        for content in delta.delta.content or ():
            if words := content.words:
                pieces = self._open.setdefault(delta.id, [])
                if pieces and self._places[delta.id] != content.index:
                    words = f"\n\n{words}"
                self._places[delta.id] = content.index
                pieces.append(words)
                yield port.TextDelta(words)

    def _end_message(self, name: str, whole: str) -> Iterator[port.AdapterEvent]:
        shown = "".join(self._open.pop(name, ()))
        whole = whole or shown
        self._closed.add(name)
        if whole.startswith(shown) and whole != shown:
            yield port.TextDelta(whole[len(shown) :])
        if whole:
            yield port.MessageReady(whole, name)

    def _error(self, content: Json) -> port.AdapterError:
        error = content.get("error", content) if isinstance(content, dict) else content
        return self._failures.in_run(error) if self._begun else self._failures.from_event(error, handle=self._handle)

    def _broken(self, what: str) -> port.AdapterError:
        return self._failures.error(port.ErrorClass.CONTRACT_BROKEN, what)
