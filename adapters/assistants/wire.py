"""Objects of the Assistants wire, as far as they are read. Law: every field but ids, kinds and places may be absent or null.

Source: OpenAI API description 2.3.0, schemas `RunObject`, `RunStepObject`, `MessageObject` and their deltas; azure-ai-agents
1.2.0b5 for `submit_tool_approval` and the tools of Foundry.
"""

from collections.abc import Sequence

import msgspec

from gateway.a2a.model import Json

ACTIVE = frozenset({"queued", "in_progress", "cancelling"})
"""Statuses of a run at which the service works on it."""
WAITING = "requires_action"


class FileName(msgspec.Struct):
    file_id: str | None = None


class Link(msgspec.Struct):
    url: str = ""
    title: str | None = None


class Annotation(msgspec.Struct):
    """`text` is the mark in the text that the annotation stands for."""

    type: str = ""
    text: str | None = None
    file_citation: FileName | None = None
    file_path: FileName | None = None
    url_citation: Link | None = None


class Text(msgspec.Struct):
    value: str | None = None
    annotations: list[Annotation] | None = None


class Content(msgspec.Struct):
    type: str = ""
    index: int = 0
    text: Text | None = None
    refusal: str | None = None
    image_file: FileName | None = None
    image_url: Link | None = None

    @property
    def words(self) -> str:
        return (self.text.value if self.text is not None else self.refusal) or ""


class Message(msgspec.Struct):
    id: str
    role: str = "assistant"
    content: list[Content] | None = None
    attachments: list[FileName] | None = None
    metadata: dict[str, str] | None = None

    @property
    def text(self) -> str:
        return "\n\n".join(words for content in self.content or () if (words := content.words))

    @property
    def files(self) -> list[str]:
        """The files in its content and its attachments."""
        pictures = (content.image_file for content in self.content or () if content.image_file is not None)
        return [file.file_id for file in (*pictures, *(self.attachments or ())) if file.file_id]

    @property
    def annotations(self) -> list[Annotation]:
        texts = (content.text for content in self.content or () if content.text is not None)
        return [annotation for text in texts for annotation in text.annotations or ()]


class _MessageChange(msgspec.Struct):
    content: list[Content] | None = None


class MessageDelta(msgspec.Struct):
    id: str
    delta: _MessageChange = msgspec.field(default_factory=_MessageChange)


class _Created(msgspec.Struct):
    message_id: str = ""


class StepDetails(msgspec.Struct):
    message_creation: _Created | None = None
    tool_calls: list[dict[str, Json]] | None = None


class Step(msgspec.Struct):
    id: str
    type: str = ""
    status: str | None = None
    step_details: StepDetails | None = None
    last_error: Json = None

    @property
    def calls(self) -> Sequence[dict[str, Json]]:
        return (self.step_details or StepDetails()).tool_calls or ()

    @property
    def message(self) -> str | None:
        """The id of the message that the step has made."""
        made = (self.step_details or StepDetails()).message_creation
        return made.message_id if made is not None else None


class _StepChange(msgspec.Struct):
    step_details: StepDetails | None = None


class StepDelta(msgspec.Struct):
    id: str
    delta: _StepChange = msgspec.field(default_factory=_StepChange)

    @property
    def calls(self) -> Sequence[dict[str, Json]]:
        return (self.delta.step_details or StepDetails()).tool_calls or ()


class _Function(msgspec.Struct):
    name: str = ""
    arguments: str | None = None


class RequiredCall(msgspec.Struct):
    """A call that the run waits for. `server_label` and what stands beside it are of a call of an MCP server."""

    id: str = ""
    type: str = ""
    function: _Function | None = None
    name: str = ""
    arguments: str | None = None
    server_label: str | None = None


class _RequiredCalls(msgspec.Struct):
    tool_calls: list[RequiredCall] | None = None


class RequiredAction(msgspec.Struct):
    type: str = ""
    submit_tool_outputs: _RequiredCalls | None = None
    submit_tool_approval: _RequiredCalls | None = None

    @property
    def calls(self) -> list[RequiredCall]:
        both = (self.submit_tool_outputs, self.submit_tool_approval)
        return [call for one in both if one is not None for call in one.tool_calls or ()]


class _Reason(msgspec.Struct):
    reason: str | None = None


class Run(msgspec.Struct):
    id: str
    status: str | None = None
    required_action: RequiredAction | None = None
    last_error: Json = None
    incomplete_details: _Reason | None = None
    usage: Json = None
    metadata: dict[str, str] | None = None

    @property
    def is_answered(self) -> bool:
        """Whether the run has ended with an answer, or waits for outcomes."""
        return self.status in (WAITING, "completed", "incomplete")


class Page(msgspec.Struct):
    """A page of a list."""

    data: list[Json] = msgspec.field(default_factory=list)
    has_more: bool | None = None
    last_id: str | None = None


class FileObject(msgspec.Struct):
    id: str


decode_run = msgspec.json.Decoder(Run).decode
decode_step = msgspec.json.Decoder(Step).decode
decode_step_delta = msgspec.json.Decoder(StepDelta).decode
decode_message = msgspec.json.Decoder(Message).decode
decode_message_delta = msgspec.json.Decoder(MessageDelta).decode
