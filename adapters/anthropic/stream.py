"""Events of a stream of the Messages API -> adapter events; no IO. Law: only `message_stop` is an end; what the service signs
or encrypts is kept as it came, and what callers see of it is without that. A call that comes again is no other call: of a tool
of the service by its id, of any other tool by its id, name and arguments.

Source: anthropic 2.14.0, type `RawMessageStreamEvent`; captures of aimock, llmock and OGX.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from secrets import token_hex
from typing import ClassVar

import msgspec

from adapters.anthropic import replay, wire
from adapters.anthropic.blocks import Blocks, GrowingBlock
from adapters.anthropic.content import BESIDE, Block
from adapters.anthropic.files import named_files
from adapters.anthropic.usage import added, merged
from adapters.http.failures import Failures
from gateway.a2a.model import Artifact, Json, Part
from gateway.ports import adapter as port

_COMPLETE = frozenset({"end_turn", "stop_sequence", "tool_use"})
_PAUSED = "pause_turn"
_REFUSED = "refusal"
_SECRET = "encrypted_"  # noqa: S105
_OWN_CALLS = replay.USES | {"tool_use"}


class SoFar(msgspec.Struct):
    """What is known of an answer when the service pauses in it. `said` are its blocks, `named` the ids that the service gave to
    calls, `calls` names and arguments of the calls that the gateway runs, by these ids, `answered` the ids of calls that the
    service has answered, and `name` is the id of its last message."""

    said: list[Block] = []
    pauses: int = 0
    state: Json = None
    files: list[str] = []
    named: list[str] = []
    calls: dict[str, list[tuple[str, str]]] = {}
    answered: list[str] = []
    cited: list[Json] = []
    name: str = ""


class MessageParser:
    """One answer of the model, in one message or, where the service pauses, in several. `receive` takes the data of every
    event until the parser has `ended`; then `finish` is called, or `go_on` where the message was `paused`. `usage` is the
    report of tokens so far, also of an answer that failed. `known.said` are the blocks of the messages that were paused,
    `known.state` is what the next request needs besides the conversation: the container of the service's tools. `known.files`
    are the ids of the files that these have written."""

    def __init__(self, failures: Failures, model: str, known: SoFar | None = None) -> None:
        self.known = SoFar() if known is None else known
        self._failures = failures
        self._model = model
        self._earlier: Json = None
        self._begin()

    def _begin(self) -> None:
        self.ended = False
        self._blocks = Blocks()
        self._usage: Json = None
        self._stop_reason: str | None = None
        self._stop_details: Json = None

    @property
    def usage(self) -> Json:
        return added(self._earlier, self._usage)

    @property
    def paused(self) -> bool:
        return self._stop_reason == _PAUSED

    def receive(self, data: bytes) -> Sequence[port.AdapterEvent]:
        """Raises: AdapterError when the answer failed, or `data` is no event."""
        try:
            event = wire.decode_event(data)
            if event.type == "content_block_delta":  # the most frequent one
                return self._delta(event)
            read = self._READERS.get(event.type)
            if read is not None:
                return read(self, event)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._broken(f"an event cannot be read: {error}") from error
        if not event.type and event.error is not None:
            raise self._failures.from_event(event.error)
        return ()

    def go_on(self) -> None:
        """The next message of the answer continues this one."""
        self.known.pauses += 1
        self.known.said += [block.whole for block in self._blocks if not block.repeated]
        self._earlier = self.usage
        self._begin()

    def finish(self) -> Sequence[port.AdapterEvent]:
        """Raises: AdapterError when the stream ended before the answer did, or the model refuses to answer."""
        if not self.ended:
            raise self._failures.error(port.ErrorClass.INTERRUPTED, "the stream ended before the message did")
        if self._stop_reason == _REFUSED:
            raise self._refusal()
        reason = self._stop_reason
        finish = None if reason is None or reason in _COMPLETE else self._failures.detail(reason)
        return (*self._citations(), port.CallCompleted(usage=self.usage, finish=finish, state=self.known.state))

    # --- the message

    def _message_start(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        if event.message is not None:
            self.known.name = event.message.id or self.known.name
            self._usage = merged(self._usage, event.message.usage)
            self._use_container(event.message.container)
        return ()

    def _message_delta(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        self._usage = merged(self._usage, event.usage)
        if event.delta is not None:
            self._stop_reason = event.delta.stop_reason or self._stop_reason
            self._stop_details = event.delta.stop_details or self._stop_details
            self._use_container(event.delta.container)
        return ()

    def _use_container(self, container: Json) -> None:
        if isinstance(container, dict):
            self.known.state = {"container": {name: container.get(name) for name in ("id", "expires_at")}}

    def _message_stop(self, _: wire.Event) -> Sequence[port.AdapterEvent]:
        self.ended = True
        for block in self._blocks:
            block.ended = True
        return self._ready()

    def _failed(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        raise self._failures.from_event(event.error or {"message": "an error without a word"})

    def _refusal(self) -> port.AdapterError:
        """What was said so far counts for nothing: the service refuses it in every later request."""
        details = self._stop_details if isinstance(self._stop_details, dict) else {}
        why = (details.get(name) for name in ("category", "explanation"))
        said = ": ".join(each for each in why if isinstance(each, str)) or "it gives no reason"
        return self._failures.error(port.ErrorClass.POLICY, f"the model refuses: {said}")

    def _broken(self, what: str) -> port.AdapterError:
        return self._failures.error(port.ErrorClass.CONTRACT_BROKEN, what)

    # --- blocks

    def _block_start(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        start = event.content_block
        if start is None or not isinstance(start.get("type"), str):
            raise self._broken("a content block has no type")
        block = self._blocks.begin(event.index, start)
        if block.kind in _OWN_CALLS:
            return self._begin_call(block)
        return (_said(block, block.text),) if block.text else ()

    def _begin_call(self, block: GrowingBlock) -> Sequence[port.AdapterEvent]:
        """Whether a call whose id is known is another one is seen at its end, and told only then."""
        of_service, given = block.kind in replay.USES, block.start.get("id")
        if isinstance(given, str) and given in self.known.named:
            block.repeated = of_service
            return ()
        block.call_id = self._new_id(given)
        return (self._announced(block, True if of_service else None),)

    def _announced(self, block: GrowingBlock, handled: bool | None = None) -> port.AdapterEvent:
        return port.ToolCallAnnounced(block.call_id, self._tool(block), handled, _server(block))

    def _delta(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        delta = event.delta
        if delta is None:
            return ()
        block = self._blocks.of_delta(event.index, delta)
        if block is None:
            raise self._broken(f"a delta of type {delta.type!r} belongs to no content block")
        if text := delta.text or delta.thinking:
            block.pieces.append(text)
            return (_said(block, text),)
        if delta.partial_json:
            block.arguments.append(delta.partial_json)
            return (port.ToolCallArguments(block.call_id, delta.partial_json),) if block.call_id else ()
        block.add(delta)
        return ()

    def _block_stop(self, event: wire.Event) -> Sequence[port.AdapterEvent]:
        block = self._blocks.find(event.index)
        if block is not None:
            block.ended = True
        return self._ready()

    def _ready(self) -> Sequence[port.AdapterEvent]:
        """What has ended is given in the order of the blocks, whichever ended first."""
        return [event for block in self._blocks.take_ended() for event in self._end(block)]

    def _end(self, block: GrowingBlock) -> Iterator[port.AdapterEvent]:
        kind = block.kind
        if kind == "text":
            if block.citations:
                self.known.cited.append({"text": block.text, "citations": [_shown(each) for each in block.citations]})
        elif kind in replay.THINKING:
            yield port.ItemReady(replay.kept_thinking(block.whole, self._model))
        elif kind == "tool_use":
            yield from self._end_call(block)
        else:
            yield from self._end_of_service_block(block)

    def _end_call(self, block: GrowingBlock) -> Iterator[port.AdapterEvent]:
        call, given = (self._tool(block), block.arguments_text), block.start.get("id")
        known = self.known.calls.setdefault(given if isinstance(given, str) else "", [])
        if not block.call_id:
            if call in known:
                block.repeated = True
                return
            block.call_id = self._new_id(given)
            yield self._announced(block)
            yield port.ToolCallArguments(block.call_id, block.arguments_text)
        known.append(call)
        yield port.ToolCallReady(block.call_id, *call)

    def _end_of_service_block(self, block: GrowingBlock) -> Iterator[port.AdapterEvent]:
        whole, given = block.whole, block.start.get("tool_use_id")
        if replay.is_result(block.kind) and isinstance(given, str):
            block.repeated = given in self.known.answered
            self.known.answered.append(given)
        if block.repeated:
            return
        yield port.ItemReady(replay.kept_block(whole, self._model))
        if block.kind in replay.USES:
            yield port.ToolCallReady(block.call_id, self._tool(block), block.arguments_text, True, _server(block))
        elif replay.is_result(block.kind):
            self.known.files += named_files(whole.get("content"))
            yield port.ToolResultReady(
                given if isinstance(given, str) else "", _output(whole.get("content")), _is_error(whole)
            )

    def _new_id(self, given: Json) -> str:
        """The id of the service, unless it gave none, or gave it to another call of the answer."""
        if isinstance(given, str) and given and given not in self.known.named:
            self.known.named.append(given)
            return given
        return f"toolu_{token_hex(12)}"

    def _tool(self, block: GrowingBlock) -> str:
        name = block.start.get("name")
        if not isinstance(name, str) or not name:
            raise self._broken("a tool call names no tool")
        return name

    def _citations(self) -> Iterator[port.AdapterEvent]:
        """What the answer rests on, beside it."""
        if self.known.cited:
            part = Part(data={"citations": self.known.cited}, media_type="application/json", metadata={BESIDE: True})
            name = f"citations-{self.known.name or token_hex(12)}"
            yield port.ArtifactReady(Artifact(artifact_id=name, name="citations", parts=(part,)), last_chunk=True)

    _READERS: ClassVar[Mapping[str, Callable[["MessageParser", wire.Event], Sequence[port.AdapterEvent]]]] = {
        "message_start": _message_start,
        "message_delta": _message_delta,
        "message_stop": _message_stop,
        "content_block_start": _block_start,
        "content_block_stop": _block_stop,
        "error": _failed,
    }


def _said(block: GrowingBlock, text: str) -> port.AdapterEvent:
    return port.TextDelta(text) if block.kind == "text" else port.ReasoningDelta(text)


def _server(block: GrowingBlock) -> str | None:
    """The executor of a tool that the service runs itself, None for any other tool."""
    match block.kind:
        case "mcp_tool_use":
            return f"mcp:{block.start.get('server_name', '')}"
        case "server_tool_use":
            return str(block.start.get("name"))
    return None


def _is_error(result: Block) -> bool:
    content = result.get("content")
    kind = content.get("type") if isinstance(content, dict) else None
    return result.get("is_error") is True or (isinstance(kind, str) and kind.endswith("_error"))


def _output(content: Json) -> Json:
    """What callers see of a result: the text where it is nothing else."""
    match content:
        case [{"type": "text"}, *_] if all(isinstance(each, dict) and each.get("type") == "text" for each in content):
            return "\n".join(str(each.get("text", "")) for each in content)
        case None | []:
            return ""
    return _shown(content)


def _shown(value: Json) -> Json:
    """The value without what only the service can read."""
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items() if not name.startswith(_SECRET)}
    return [_shown(each) for each in value] if isinstance(value, list) else value
