"""A task as it unfolds, on a terminal. Law: the wire's JSON is a stranger's; showing the same state twice shows it once."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gateway.a2a.tool_calls import URI
from gateway.cli.console.exits import OF_STATE, ExitCode
from gateway.cli.console.terminal import Screen, json_text
from gateway.cli.talk.approvals import about, call_line, is_said_twice, moment_line, tool_call
from gateway.client.transport import at, objects, text_at

Json = Any

_SAID_BY_AGENT = {"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"}
_BAD_END = {"TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"}


@dataclass(slots=True)
class Standing:
    """Where the conversation stands, for exit codes and for what to type next."""

    context: str | None = None
    task: str | None = None
    state: str | None = None
    replied: bool = False

    def note(self, event: Json) -> None:
        """`event` is a StreamResponse or a SendMessageResponse."""
        body = next((body for key in _KINDS if isinstance(body := at(event, key), dict)), None)
        self.context = text_at(body, "contextId") or self.context
        self.task = text_at(body, "taskId") or text_at(event, "task", "id") or self.task
        self.state = text_at(body, "status", "state") or self.state
        self.replied = self.replied or at(event, "message") is not None

    @property
    def word(self) -> str:
        """The state as a person would write it."""
        return (self.state or "").removeprefix("TASK_STATE_").lower().replace("_", " ")

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK if self.replied else OF_STATE.get(self.state or "", ExitCode.UNEXPECTED)


_KINDS = ("task", "message", "statusUpdate", "artifactUpdate")


@dataclass(slots=True)
class _Shown:
    """What is on the screen of one artifact: its text, and how many other parts."""

    text: str = ""
    others: int = 0


@dataclass(frozen=True, slots=True)
class _Final:
    """A state in which nobody works, and what the agent said with it."""

    state: str
    text: str
    message: str | None


@dataclass(slots=True)
class TextView:
    """Shows answers on standard output, tool calls and progress beside them."""

    screen: Screen
    _artifacts: dict[str, _Shown] = field(default_factory=dict)
    _messages: set[str] = field(default_factory=set)
    _answered: set[str] = field(default_factory=set)
    _last: str | None = None
    _spoken: bool = False
    _final: _Final | None = None

    def skip(self, task: Json) -> None:
        """What a task holds already is not shown."""
        self._messages.update(
            str(at(message, "messageId")) for message in (*_by_agent(task), at(task, "status", "message"))
        )
        self._note_status(at(task, "status"))
        self.go_on()
        for artifact in objects(task, "artifacts"):
            self._artifacts[_id(artifact)] = _shown(objects(artifact, "parts"))

    def ask_again(self, task: Json) -> None:
        """What a task waits for, and nothing of what it holds beside."""
        self.skip({name: value for name, value in task.items() if name != "status"})
        self._messages.discard(str(at(task, "status", "message", "messageId")))
        self._note_status(at(task, "status"))
        self.finish()

    def go_on(self) -> None:
        """Another message goes to the same task: what is on the screen stays, and its question is answered."""
        if self._final is not None and self._final.message is not None:
            self._answered.add(self._final.message)
        self._last, self._spoken, self._final = None, False, None

    def receive(self, event: Json) -> None:
        for key, show in (
            ("task", self._task),
            ("message", self._message),
            ("statusUpdate", self._status_update),
            ("artifactUpdate", self._artifact_update),
        ):
            body = at(event, key)
            if isinstance(body, dict):
                show(body)

    def finish(self) -> None:
        """The end: what the agent said with the final state, where that is not shown yet."""
        state, text = (self._final.state, self._final.text) if self._final is not None else ("", "")
        if text and (state in _SAID_BY_AGENT or (state not in _BAD_END and not self._spoken)):
            self.screen.end_line()
            self.screen.answer(text)
        self.screen.end_line()
        if text and state in _BAD_END:
            self.screen.tell(f"{state.removeprefix('TASK_STATE_').lower()}: {text}")

    # --- events

    def _task(self, task: Json) -> None:
        """The task as it stands: much of it may have been done before it is first shown, or while nobody listened."""
        self._note_status(at(task, "status"))
        for message in _by_agent(task):
            self._said_beside(message)
        for artifact in objects(task, "artifacts"):
            self._whole(artifact)

    def _said_beside(self, message: Json) -> None:
        """Progress, once: it comes as an update and stands in the task's history, too."""
        name = text_at(message, "messageId")
        if name is None or name not in self._messages:
            for part in objects(message, "parts"):
                if not is_said_twice(part, message):
                    self._beside(part)
        if name is not None:
            self._messages.add(name)

    def _message(self, message: Json) -> None:
        self._show(objects(message, "parts"))

    def _artifact_update(self, update: Json) -> None:
        artifact = at(update, "artifact")
        parts = objects(artifact, "parts")
        if not at(update, "append") and _id(artifact) in self._artifacts:
            self._whole(artifact)
            return
        self._switch(_id(artifact))
        shown = self._artifacts.setdefault(_id(artifact), _Shown())
        new = _shown(parts)
        shown.text += new.text
        shown.others += new.others
        self._show(parts)

    def _whole(self, artifact: Json) -> None:
        """An artifact from its beginning, of which some may be on the screen."""
        parts = objects(artifact, "parts")
        shown, now = self._artifacts.get(_id(artifact), _Shown()), _shown(parts)
        known = shown if now.text.startswith(shown.text) else _Shown()
        self._artifacts[_id(artifact)] = now
        missing = _without(parts, len(known.text), known.others)
        if missing:
            self._switch(_id(artifact) if known is shown else None)
            self._show(missing)

    def _switch(self, artifact: str | None) -> None:
        if artifact is None or artifact != self._last:
            self.screen.end_line()
        self._last = artifact

    def _status_update(self, update: Json) -> None:
        status = at(update, "status")
        moment = moment_line(at(update, "metadata", URI))
        if moment is not None:
            self.screen.note(moment, about=text_at(update, "metadata", URI, "callId"))
        if text_at(status, "state") not in OF_STATE:
            if self._final is not None and self._final.text:
                self.screen.note(f"... {self._final.text}")
                self.go_on()
            self._said_beside(at(status, "message"))
        self._note_status(status)

    def _note_status(self, status: Json) -> None:
        state, message = text_at(status, "state"), at(status, "message")
        name = text_at(message, "messageId")
        if state in OF_STATE and (name is None or name not in self._answered):
            parts = objects(message, "parts")
            self._final = _Final(state or "", "\n".join(part["text"] for part in parts if is_text(part)), name)
            if name is None or name not in self._messages:
                self._called(part for part in parts if not is_said_twice(part, message))
            if name is not None:
                self._messages.add(name)

    def _called(self, parts: Iterable[Json]) -> None:
        """The calls that somebody else is to carry out: the agent tells them nowhere but in its question."""
        for part in parts:
            if tool_call(part):
                self._beside(part)

    # --- parts

    def _beside(self, part: Json) -> None:
        self.screen.note(described(part), about=about(part))

    def _show(self, parts: Iterable[Json]) -> None:
        for part in parts:
            if tool_call(part):
                self._beside(part)
            elif is_text(part):
                self._spoken = True
                self.screen.answer(part["text"])
            elif "data" in part:
                self._spoken = True
                self.screen.line(json_text(part["data"]))
            else:
                self._spoken = True
                self.screen.note(described_file(part))


def described(part: Json) -> str:
    """A part that is no text of the answer, as a line."""
    if tool_call(part):
        return call_line(part)
    if is_text(part):
        return f"... {part['text']}"
    return f"... {json_text(part['data'])}" if "data" in part else f"... {described_file(part)}"


def _id(artifact: Json) -> str:
    return str(at(artifact, "artifactId"))


def _by_agent(task: Json) -> list[dict[str, Json]]:
    """What the agent has said beside its answers."""
    return [message for message in objects(task, "history") if message.get("role") == "ROLE_AGENT"]


def is_text(part: Json) -> bool:
    return isinstance(at(part, "text"), str)


def _shown(parts: list[dict[str, Json]]) -> _Shown:
    texts = [part["text"] for part in parts if is_text(part)]
    return _Shown("".join(texts), len(parts) - len(texts))


def _without(parts: Iterable[dict[str, Json]], characters: int, others: int) -> list[dict[str, Json]]:
    """The parts without so much text and so many other parts at their beginning."""
    missing = []
    for part in parts:
        if not is_text(part):
            others -= 1
            if others < 0:
                missing.append(part)
            continue
        text = part["text"]
        if len(text) > characters:
            missing.append({**part, "text": text[characters:]})
        characters = max(0, characters - len(text))
    return missing


def described_file(part: Json) -> str:
    name, kind, url, raw = (at(part, key) for key in ("filename", "mediaType", "url", "raw"))
    size = f"{len(raw) * 3 // 4} bytes" if isinstance(raw, str) else None
    return f"file: {' '.join(str(word) for word in (name, kind, size, url) if word) or 'without a name'}"
