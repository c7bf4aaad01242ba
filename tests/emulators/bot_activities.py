"""A scripted bot: the steps of a script as activities, in the form of Microsoft's SDKs.

Source: microsoft-agents-hosting-core 1.9.0 (streaming of messages); transcripts of Copilot Studio (steps of a plan).
"""

from collections.abc import Iterable, Iterator, Mapping
from secrets import token_hex
from typing import Any

from tests.emulators.scripts import Delay, Item, Json, Pause, Say, ServerTool, Step, Think, pieces


def user_items(texts: Iterable[str]) -> tuple[Json, ...]:
    """The messages of the user, for a script. An empty line is between messages that came together."""
    return tuple({"role": "user", "content": each} for text in texts for each in text.split("\n\n"))


class BotAnswer:
    """The activities of one turn, which answer the message `reply_to`; None: those of the start, which may be none. `deltas`:
    each piece of a message is only what is new."""

    def __init__(self, reply_to: str | None, *, deltas: bool) -> None:
        self._reply_to = reply_to
        self._deltas = deltas
        self._stream: str | None = None
        self._text = ""
        self._number = 0
        self._spoke = False

    def take(self, step: Step) -> Iterator[Json | Pause | Delay]:
        match step:
            case Say(text, chunks):
                for piece in pieces(text, chunks):
                    self._text += piece
                    yield self._piece("streaming", piece if self._deltas else self._text)
            case Think(summary):
                yield self._piece("informative", summary)
            case ServerTool():
                yield from self._tool(step)
            case Item(body):
                yield from self._whole()
                yield self._activity(dict(body))
                self._spoke = True
            case _:
                raise TypeError(f"a bot has no {type(step).__name__}")

    def finish(self) -> Iterator[Json]:
        yield from self._whole()
        if not self._spoke and self._reply_to is not None:
            yield self._activity({"type": "message", "text": "", "inputHint": "acceptingInput"})

    def _piece(self, kind: str, text: str) -> Json:
        self._stream = self._stream or token_hex(8)
        self._number += 1
        info = {"type": "streaminfo", "streamType": kind, "streamSequence": self._number, "streamId": self._stream}
        given: Json = {"type": "typing", "text": text, "entities": [info]}
        if self._deltas and kind == "streaming":
            given["channelData"] = {"chunkType": "delta"}
        return self._activity(given)

    def _whole(self) -> Iterator[Json]:
        """The end of the message that has begun."""
        if self._stream is None:
            return
        info = {"type": "streaminfo", "streamType": "final", "streamId": self._stream}
        yield self._activity({"type": "message", "text": self._text, "entities": [info]})
        self._stream, self._text, self._number, self._spoke = None, "", 0, True

    def _tool(self, step: ServerTool) -> Iterator[Json | Pause | Delay]:
        named = {"stepId": token_hex(16), "taskDialogId": f"MCP:orders:{step.name}", "planIdentifier": token_hex(16)}
        state = "completed" if step.error is None else "failed"
        yield self._event(
            "DynamicPlanStepTriggered", named | {"thought": "", "state": "inProgress", "type": "LlmSkill"}
        )
        yield self._event("DynamicPlanStepBindUpdate", named | {"arguments": dict(step.arguments)})
        if step.during is not None:
            yield step.during
        output = step.output if step.error is None else step.error
        yield self._event("DynamicPlanStepFinished", named | {"observation": output, "state": state})

    def _event(self, name: str, value: Mapping[str, Any]) -> Json:
        return self._activity({"type": "event", "name": name, "valueType": name, "value": value})

    def _activity(self, given: Json) -> Json:
        reply = {} if self._reply_to is None else {"replyToId": self._reply_to}
        return {"from": {"id": "bot", "name": "Bot", "role": "bot"}} | reply | given
