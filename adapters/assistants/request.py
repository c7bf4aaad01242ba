"""Encodes items as the messages of a new run, or as the outcomes that a run waits for. Law: a file is sent by its name at the
service, and only this module says which tool of the service reads it.

Source: OpenAI API description 2.3.0, schemas `CreateRunRequest` and `SubmitToolOutputsRunRequest`; azure-ai-agents 1.2.0b5,
`ToolApproval`.
"""

import base64
import mimetypes
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET

from gateway.a2a.model import Json, Part
from gateway.ports.conversation import AssistantItem, CallItem, Item, OutputItem, UserItem, joined
from gateway.ports.tools import ToolDeclaration

UPLOADED = "a2a_gateway_files"
"""The key of a message's metadata that says that its files are of this message alone. They go with the thread."""


@dataclass(frozen=True, slots=True)
class File:
    name: str
    media_type: str
    data: bytes

    @property
    def is_picture(self) -> bool:
        return self.media_type.startswith("image/")


Upload = Callable[[File], Awaitable[str]]
"""Stores a file at the service and gives its id there."""


def split(items: Sequence[Item], *, waits: bool) -> tuple[tuple[OutputItem, ...], tuple[Item, ...]]:
    """The outcomes for the run that `waits`, and what goes into a new run."""
    if not waits:
        return (), tuple(items)
    answers = tuple(item for item in items if isinstance(item, OutputItem))
    return answers, tuple(item for item in items if not isinstance(item, OutputItem))


def encode_outcomes(answers: Sequence[OutputItem]) -> dict[str, Json]:
    """The fields of a submission."""
    outputs = [
        {"tool_call_id": answer.call_id, "output": output_text(answer)} for answer in answers if answer.approved is None
    ]
    approvals = [
        {"tool_call_id": answer.call_id, "approve": answer.approved}
        for answer in answers
        if answer.approved is not None
    ]
    # OpenAI's own service knows no approvals, and wants the outputs.
    return {"tool_outputs": outputs} | ({"tool_approvals": approvals} if approvals else {})


def output_text(item: OutputItem) -> str:
    """The wire has no mark for a tool that failed."""
    text = item.output if isinstance(item.output, str) else _json(item.output)
    return f"Error: {text}" if item.error and not text.lower().startswith("error") else text


def encode_tool(tool: ToolDeclaration) -> dict[str, Json]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def with_own(own: Sequence[Json], declared: Sequence[ToolDeclaration]) -> list[Json]:
    """The tools of a run, which replace those of its assistant: `own`, those of the assistant, except functions with the name
    of a declared one."""
    names = {tool.name for tool in declared}
    kept = [tool for tool in own if _function_name(tool) not in names]
    return [*kept, *map(encode_tool, declared)]


async def encode_messages(items: Sequence[Item], upload: Upload) -> list[Json]:
    """Earlier answers and calls come only where a lost thread is told again from its beginning."""
    calls: dict[str, CallItem] = {}
    messages: list[Json] = []
    for item in items:
        match item:
            case UserItem(message=message):
                messages.append(await _user(message.parts, upload))
            case AssistantItem(parts=parts):
                messages += _assistant(joined(map(_told, parts)))
            case CallItem(call_id=name):
                calls[name] = item
            case OutputItem(call_id=name) if (call := calls.pop(name, None)) is not None:
                messages += _assistant(f"[{call.name}({call.arguments}): {output_text(item)}]")
            case _:
                pass
    return messages


async def _user(parts: Sequence[Part], upload: Upload) -> Json:
    content: list[Json] = []
    attachments: list[Json] = []
    names: list[str] = []
    for part in parts:
        text = _words(part)
        if text is not None:
            content += [{"type": "text", "text": text}] if text else []
        elif part.url is not None:
            content.append(_linked(part, part.url))
        else:
            file = _file(part)
            names.append(file.name)
            name = await upload(file)
            if file.is_picture:
                content.append({"type": "image_file", "image_file": {"file_id": name, "detail": "auto"}})
            else:
                attachments.append({"file_id": name, "tools": [{"type": _reader(file)}]})
    # The service refuses a message without content.
    instead = {"type": "text", "text": ", ".join(names) or "(an empty message)"}
    message: dict[str, Json] = {"role": "user", "content": content or [instead]}
    more = {"attachments": attachments} if attachments else {}
    return message | more | ({"metadata": {UPLOADED: "own"}} if names else {})


def _linked(part: Part, url: str) -> Json:
    if _media_type(part).startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url, "detail": "auto"}}
    # The service reads no other file from an address.
    return {"type": "text", "text": f"{part.filename}: {url}" if part.filename else url}


def _reader(file: File) -> str:
    """The tool that reads a file: what is text is searched, and code reads tables, archives and the rest."""
    searched = file.media_type.startswith("text/") and file.media_type != "text/csv"
    return "file_search" if searched or file.media_type in _DOCUMENTS else "code_interpreter"


_DOCUMENTS = frozenset(
    {
        "application/pdf",
        "application/json",
        "application/msword",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    }
)
"""Documents besides texts that `file_search` takes. Source: OpenAI's guide to file search, supported files."""


def _assistant(text: str) -> list[Json]:
    return [{"role": "assistant", "content": text}] if text else []


def _told(part: Part) -> str:
    """A part of an earlier answer: a file by its name."""
    words = _words(part)
    return f"[{_file_name(part)}]" if words is None else words


def _words(part: Part) -> str | None:
    """None for a file."""
    if part.text is not None:
        return part.text
    return None if part.data is UNSET else _json(part.data)


def _file(part: Part) -> File:
    return File(_file_name(part), _media_type(part), base64.b64decode(part.raw or ""))


def _file_name(part: Part) -> str:
    return part.filename or part.url or f"file{mimetypes.guess_extension(_media_type(part)) or ''}"


def _media_type(part: Part) -> str:
    guessed = mimetypes.guess_type(part.filename or part.url or "")[0]
    return part.media_type or guessed or "application/octet-stream"


def _function_name(tool: Json) -> str | None:
    function = tool.get("function") if isinstance(tool, dict) else None
    return function.get("name") if isinstance(function, dict) else None


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()
