"""One answer of Dify: the events of its stream as events of the port. No IO."""

import mimetypes
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin, urlsplit

import msgspec
from gateway.a2a.model import Json, Part
from gateway.ports import adapter as ports

from .faults import Faults
from .forms import Form, Pending, form, question, waiting


class _Thought:
    """An `agent_thought`, which comes several times under one id as it fills."""

    def __init__(self) -> None:
        self.told = ""
        self.tools: list[str] = []
        self.ready = self.answered = False


class Answer:
    def __init__(self, faults: Faults, base: str, request: ports.ServiceRequest, run: str | None = None) -> None:
        """`run`: the workflow run that is joined again."""
        self._faults, self._base, self._request, self._run = faults, base, request, run
        self._message: str | None = None
        self._names: tuple[str | None, str | None] | None = None
        self._workflow = run is not None
        self._pieces = [""]
        """The texts of the answer: the gateway makes a message of its own of the text after a tool call or a file."""
        self._shown = self._agent = False
        self._thoughts: dict[str, _Thought] = {}
        self._files: set[str] = set()
        self._forms: list[Form] = []
        self._message_end = self._finished = self._failed = False
        self._paused = False
        self._usage: Json = None
        self._finish: str | None = None
        self.complete = False

    def read(self, event: dict[str, Any]) -> Iterator[ports.AdapterEvent]:
        kind = event.get("event")
        data = event.get("data")
        data = data if isinstance(data, dict) else {}
        if kind == "error":
            raise self._faults.event(str(event.get("code")), str(event.get("message")), shown=self._shown)
        yield from self._start(event)
        if isinstance(message := event.get("message_id"), str):
            self._message = message
        if isinstance(run := event.get("workflow_run_id"), str):
            self._run, self._workflow = run, True
        match kind:
            case "message" if self._agent:  # a New Agent app says its whole answer once more
                yield from self._whole(_text(event, "answer"))
            case "message" | "agent_message":
                self._agent = kind == "agent_message"
                text = _text(event, "answer")
                self._pieces[-1] += text
                self._shown = self._shown or bool(text)
                yield ports.TextDelta(text)
            case "message_replace":
                yield from self._replace(_text(event, "answer"))
            case "agent_thought":
                yield from self._think(event)
            case "reasoning_chunk":
                if text := _text(data, "reasoning"):
                    yield ports.ReasoningDelta(text)
            case "message_file" if event.get("belongs_to") != "user":
                yield from self._file(event)
            case "node_started":
                if title := _text(data, "title"):
                    yield ports.Progress(title)
            case "agent_log":
                if label := _text(data, "label"):
                    yield ports.Progress(label)
            case "human_input_required":
                self._forms.append(form(data))
            case "workflow_paused":
                yield from self._pause(data)
            case "message_end":
                yield from self._close_calls()
                metadata = event.get("metadata")
                self._usage = metadata.get("usage") if isinstance(metadata, dict) else None
                self._message_end = True
                self.complete = self._finished or not self._workflow
            case "workflow_finished":
                yield from self._finish_run(data)

    def end(self) -> ports.CallCompleted:
        """After `complete`, or at the end of the stream."""
        if self._failed or not (self.complete or self._message_end or self._finished):
            if self._failed:
                raise self._faults.error(ports.ErrorClass.BACKEND_FAILED, "the workflow failed")
            raise self._faults.error(ports.ErrorClass.INTERRUPTED, "the answer ended before its `message_end`")
        handle = self._names[0] if self._names else self._request.handle
        if self._paused:
            return asking(self._request, Pending(self._run or "", tuple(self._forms)), handle)
        return ports.CallCompleted(
            handle=handle,
            usage=self._usage,
            finish=self._finish,
            secret=_answered(self._request),
            state={"message": self._message} if self._message else None,
        )

    @property
    def ended(self) -> bool:
        """The service has said that the answer is complete, whatever comes behind it."""
        return not self._failed and (self.complete or self._message_end)

    def _start(self, event: dict[str, Any]) -> Iterator[ports.AdapterEvent]:
        if self._names is not None:
            return
        handle, run = event.get("conversation_id"), event.get("task_id")
        names = (
            handle if isinstance(handle, str) and handle else self._request.handle,
            run if isinstance(run, str) else None,
        )
        if names[0] is None:
            raise self._faults.error(ports.ErrorClass.CONTRACT_BROKEN, "the first event has no conversation_id")
        self._names = names
        yield ports.CallStarted(names[0], run_name(names[1], event.get("message_id"), event.get("workflow_run_id")))

    def _whole(self, answer: str) -> Iterator[ports.AdapterEvent]:
        if answer.strip() not in ("".join(self._pieces).strip(), self._pieces[-1].strip()):
            yield from self._replace(answer)

    def _replace(self, text: str) -> Iterator[ports.AdapterEvent]:
        """All text so far is void, also that before a tool call."""
        *earlier, _ = self._pieces
        for index, piece in enumerate(earlier):
            if piece:
                yield ports.MessageReady("", str(index))
        yield ports.MessageReady(text, str(len(earlier)))
        self._pieces, self._shown = ["" for _ in earlier] + [text, ""], True

    def _break(self) -> Iterator[ports.AdapterEvent]:
        """Ends a message, so that it has a key by which it can be replaced."""
        if self._pieces[-1]:
            yield ports.MessageReady(self._pieces[-1], str(len(self._pieces) - 1))
            self._pieces.append("")

    def _think(self, event: dict[str, Any]) -> Iterator[ports.AdapterEvent]:
        key = str(event.get("id") or event.get("position") or "")
        thought = self._thoughts.setdefault(key, _Thought())
        words = _text(event, "thought")
        # An agent's thought is often the text that it has said already.
        if words.strip() and words.strip() not in "".join(self._pieces) and words != thought.told:
            yield ports.ReasoningDelta(words.removeprefix(thought.told))
            thought.told = words
        tools = [name for name in _text(event, "tool").split(";") if name]
        if tools and not thought.tools:
            yield from self._break()
            thought.tools, self._shown = tools, True
            for call, name in self._calls(key, thought):
                yield ports.ToolCallAnnounced(call, name, handled=True)
        observation, given = _text(event, "observation"), _text(event, "tool_input")
        if thought.tools and not thought.ready and (given or observation):
            yield from self._ready(key, thought, given)
        if thought.tools and observation and not thought.answered:
            thought.answered = True
            results = _by_tool(observation, thought.tools)
            for index, (call, _) in enumerate(self._calls(key, thought)):
                yield ports.ToolResultReady(call, results[index])

    def _ready(self, key: str, thought: _Thought, given: str) -> Iterator[ports.AdapterEvent]:
        thought.ready = True
        arguments = _by_tool(given, thought.tools)
        for index, (call, name) in enumerate(self._calls(key, thought)):
            value = arguments[index]
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            yield ports.ToolCallReady(call, name, text, handled=True)

    def _close_calls(self) -> Iterator[ports.AdapterEvent]:
        for key, thought in self._thoughts.items():
            if thought.tools and not thought.ready:
                yield from self._ready(key, thought, "")

    def _calls(self, key: str, thought: _Thought) -> list[tuple[str, str]]:
        if len(thought.tools) == 1:
            return [(key, thought.tools[0])]
        return [(f"{key}:{index}", name) for index, name in enumerate(thought.tools)]

    def _file(self, file: dict[str, Any]) -> Iterator[ports.AdapterEvent]:
        url = file.get("url") or file.get("remote_url")
        if not isinstance(url, str) or not url or url in self._files:
            return
        yield from self._break()
        self._files.add(url)
        self._shown = True
        url = urljoin(self._base + "/", url)  # Dify without FILES_URL gives a path
        kind, name = file.get("mime_type"), file.get("filename")
        media = kind if isinstance(kind, str) and kind else mimetypes.guess_type(urlsplit(url).path)[0]
        yield ports.PartReady(Part(url=url, media_type=media, filename=name if isinstance(name, str) else None))

    def _pause(self, data: dict[str, Any]) -> Iterator[ports.AdapterEvent]:
        yield from self._close_calls()
        if not self._forms:
            reasons = [reason for reason in data.get("reasons") or () if isinstance(reason, dict)]
            self._forms = [form(reason) for reason in reasons if reason.get("TYPE") == "human_input_required"]
        if not self._forms:
            self._forms = [Form("The workflow waits.")]
        if isinstance(run := data.get("workflow_run_id"), str):
            self._run = run
        self._paused = self.complete = True

    def _finish_run(self, data: dict[str, Any]) -> Iterator[ports.AdapterEvent]:
        yield from self._close_calls()
        status = data.get("status")
        if status == "failed":
            self._failed = True
            return
        if status == "stopped":
            self._finish = "stopped"
        outputs = data.get("outputs")
        if not any(self._pieces) and isinstance(outputs, dict) and isinstance(outputs.get("answer"), str):
            self._pieces[-1] = outputs["answer"]
            yield ports.TextDelta(self._pieces[-1])
        for file in data.get("files") or ():
            if isinstance(file, dict):
                yield from self._file(file)
        self._finished = True
        self.complete = self._message_end


def run_name(task: str | None, message: object, workflow: object) -> str | None:
    """The names of a call as one: the task, which can be stopped, and for a Chatflow what can be looked up later."""
    if task is None or not isinstance(message, str) or not isinstance(workflow, str):
        return task
    return f"{task}:{message}:{workflow}"


def asking(
    request: ports.ServiceRequest, pending: Pending, handle: str | None, *, before: str = ""
) -> ports.CallCompleted:
    return ports.CallCompleted(
        handle=handle,
        ending=ports.Ending.INPUT_REQUIRED,
        message=question(pending.forms[0], request.accepted_output_modes, before),
        secret=msgspec.to_builtins(waiting(request.secret).but(request.task_id, pending)),
    )


def _answered(request: ports.ServiceRequest) -> Json:
    """None leaves what there is."""
    earlier = waiting(request.secret)
    return msgspec.to_builtins(earlier.but(request.task_id)) if request.task_id in earlier.tasks else None


def _text(event: dict[str, Any], key: str) -> str:
    value = event.get(key)
    return value if isinstance(value, str) else ""


def _by_tool(text: str, tools: list[str]) -> list[Json]:
    """The share of each tool: JSON by the names of the tools where it is that, else the text itself."""
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and value and set(value) <= set(tools):
        return [value.get(name, "") for name in tools]
    return [text] * len(tools)
