"""A task as text: its events on a terminal as they come, or the whole of it to read.

Law: nothing is assumed about the agent's JSON; a state that comes twice is shown once.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field

from gateway.a2a.tool_calls import URI
from gateway.cli.console.output import OF_STATE, Screen, json_text, visible
from gateway.cli.talk.tool_calls import (
    call_line,
    progress_line,
    repeats_approval,
    replaced_call,
    running_since,
    tool_call,
    waited_calls,
)
from gateway.client.client import WAITING
from gateway.client.transport import Json, json_at, objects, text_at

_SPEAKERS = {"ROLE_USER": "you", "ROLE_AGENT": "agent"}
_BAD_ENDS = {"TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"}


@dataclass(slots=True)
class _Shown:
    """What the screen shows of one artifact: its text, and the number of other parts."""

    text: str = ""
    others: int = 0


@dataclass(frozen=True, slots=True)
class _Final:
    """A state in which the agent does not work, and the text of its message. `cut` says that the answer is not whole."""

    state: str = ""
    text: str = ""
    message: str | None = None
    cut: bool = False


@dataclass(slots=True)
class TextView:
    """Shows answers on standard output, tool calls and progress on standard error."""

    screen: Screen
    _artifacts: dict[str, _Shown] = field(default_factory=dict)
    _messages: set[str] = field(default_factory=set)
    _answered_messages: set[str] = field(default_factory=set)
    _running: dict[str, str] = field(default_factory=dict)
    """Since when each call runs, empty where that is not known."""
    _last: str | None = None
    _has_answer: bool = False
    _final: _Final = _Final()

    def skip(self, task: Json) -> None:
        """Marks everything that the task holds as shown."""
        self._messages.update(
            str(json_at(message, "messageId")) for message in (*_by_agent(task), json_at(task, "status", "message"))
        )
        self._note_status(json_at(task, "status"))
        self.continue_task()
        for artifact in objects(task, "artifacts"):
            self._artifacts[_id(artifact)] = _shown(objects(artifact, "parts"))

    def show_question(self, task: Json) -> None:
        """Shows what the task waits for, and nothing else of it."""
        self.skip({name: value for name, value in task.items() if name != "status"})
        self._messages.discard(str(json_at(task, "status", "message", "messageId")))
        self._note_status(json_at(task, "status"))
        self.finish()

    def continue_task(self) -> None:
        """Another message goes to the same task, whose question it answers."""
        if self._final.message is not None:
            self._answered_messages.add(self._final.message)
        self._last, self._has_answer, self._final = None, False, _Final()

    def receive(self, event: Json) -> None:
        for key, show in (
            ("task", self._task),
            ("message", lambda message: self._show(objects(message, "parts"))),
            ("statusUpdate", self._status_update),
            ("artifactUpdate", self._artifact_update),
        ):
            body = json_at(event, key)
            if isinstance(body, dict):
                show(body)

    def finish(self) -> None:
        """Shows the message of the final state, unless an answer was shown that is whole."""
        state, text = self._final.state, self._final.text
        if text and (state in WAITING or (state not in _BAD_ENDS and not self._has_answer)):
            self.screen.end_line()
            self.screen.answer(text)
        self.screen.end_line()
        if text and state in _BAD_ENDS:
            self.screen.report(f"{state_words(state)}: {text}")
        elif text and self._final.cut and self._has_answer:
            self.screen.report(text)

    def _task(self, task: Json) -> None:
        """Shows a snapshot: parts of it may have come before the stream began or while it was disconnected."""
        self._note_status(json_at(task, "status"))
        self._running = dict.fromkeys(waited_calls(task), "") | self._running
        for message in _by_agent(task):
            self._show_progress(message)
        for artifact in objects(task, "artifacts"):
            self._show_artifact(artifact)

    def _show_progress(self, message: Json, *, calls_only: bool = False) -> None:
        """Shows a message once: it comes as an update, and stands in the task's history as well."""
        name = text_at(message, "messageId")
        if name is None or name not in self._messages:
            for part in objects(message, "parts"):
                if not repeats_approval(part, message) and (tool_call(part) or not calls_only):
                    self._note_part(part)
        if name is not None:
            self._messages.add(name)

    def _artifact_update(self, update: Json) -> None:
        artifact = json_at(update, "artifact")
        parts = objects(artifact, "parts")
        if not json_at(update, "append") and _id(artifact) in self._artifacts:
            self._show_artifact(artifact)
            return
        shown, new = self._artifacts.setdefault(_id(artifact), _Shown()), _shown(parts)
        self._show_more(_id(artifact), parts, begun=bool(shown.text))
        shown.text += new.text
        shown.others += new.others

    def _show_artifact(self, artifact: Json) -> None:
        """Shows what the screen lacks of a whole artifact."""
        parts = objects(artifact, "parts")
        shown, now = self._artifacts.get(_id(artifact), _Shown()), _shown(parts)
        known = shown if now.text.startswith(shown.text) else _Shown()
        self._artifacts[_id(artifact)] = now
        missing = _unshown(parts, len(known.text), known.others)
        if missing:
            self._show_more(_id(artifact) if known is shown else None, missing, begun=bool(known.text))

    def _show_more(self, artifact: str | None, parts: list[dict[str, Json]], *, begun: bool) -> None:
        """Shows parts of an artifact. If something else was shown last, the parts begin a line, and the blank line that
        divides them from the text before is left out; `begun` says that there is such a text."""
        if artifact is None or artifact != self._last:
            self.screen.end_line()
            if begun and parts and _is_text(parts[0]):
                parts = [{**parts[0], "text": parts[0]["text"].lstrip("\n")}, *parts[1:]]
        self._last = artifact
        self._show(parts)

    def _status_update(self, update: Json) -> None:
        status, since = json_at(update, "status"), running_since(update)
        if since is not None:
            self._running[since[0]] = since[1]
        line = progress_line(json_at(update, "metadata", URI))
        if line is not None:
            self.screen.note(line, about=text_at(update, "metadata", URI, "callId"))
        if text_at(status, "state") not in OF_STATE:
            if self._final.text:
                self.screen.note(f"... {self._final.text}")
                self.continue_task()
            self._show_progress(json_at(status, "message"))
        self._note_status(status)

    def _note_status(self, status: Json) -> None:
        state, message = text_at(status, "state"), json_at(status, "message")
        name = text_at(message, "messageId")
        if state in OF_STATE and (name is None or name not in self._answered_messages):
            texts = (part["text"] for part in objects(message, "parts") if _is_text(part))
            cut = json_at(message, "metadata", "finishReason") is not None
            self._final = _Final(state or "", "\n".join(texts), name, cut)
            # Calls that the client is to run come only with the question.
            self._show_progress(message, calls_only=True)

    def _note_part(self, part: Json) -> None:
        began = self._running.get(text_at(part, "data", "id") or "")
        line = (
            call_line(part, began) if tool_call(part) else f"... {part['text'] if _is_text(part) else _content(part)}"
        )
        self.screen.note(line, about=replaced_call(part))

    def _show(self, parts: Iterable[Json]) -> None:
        for part in parts:
            if tool_call(part):
                self._note_part(part)
                continue
            self._has_answer = True
            if _is_text(part):
                self.screen.answer(part["text"])
            elif "data" in part:
                self.screen.line(json_text(part["data"]))
            else:
                self.screen.note(file_line(part))


def _content(part: Json) -> str:
    """A part that is neither text nor a tool call."""
    return json_text(part["data"]) if "data" in part else file_line(part)


def _id(artifact: Json) -> str:
    return str(json_at(artifact, "artifactId"))


def _by_agent(task: Json) -> list[dict[str, Json]]:
    """The messages of the agent: progress, not its answers."""
    return [message for message in objects(task, "history") if message.get("role") == "ROLE_AGENT"]


def _is_text(part: Json) -> bool:
    return isinstance(json_at(part, "text"), str)


def _shown(parts: list[dict[str, Json]]) -> _Shown:
    return _Shown(_text(parts), sum(not _is_text(part) for part in parts))


def _text(parts: Iterable[Json]) -> str:
    return "".join(part["text"] for part in parts if _is_text(part))


def _unshown(parts: Iterable[dict[str, Json]], characters: int, others: int) -> list[dict[str, Json]]:
    """The parts after the first `characters` of text and the first `others` other parts."""
    missing = []
    for part in parts:
        if not _is_text(part):
            others -= 1
            if others < 0:
                missing.append(part)
            continue
        text = part["text"]
        if len(text) > characters:
            missing.append({**part, "text": text[characters:]})
        characters = max(0, characters - len(text))
    return missing


def file_line(part: Json) -> str:
    name, kind, url, raw = (json_at(part, key) for key in ("filename", "mediaType", "url", "raw"))
    size = f"{len(raw) * 3 // 4} bytes" if isinstance(raw, str) else None
    return f"file: {' '.join(str(word) for word in (name, kind, size, url) if word) or 'without a name'}"


def state_words(state: str | None) -> str:
    """A task's state as a person writes it."""
    return (state or "").removeprefix("TASK_STATE_").lower().replace("_", " ")


def state_of(task: Json) -> str:
    return state_words(text_at(task, "status", "state"))


def status_time(task: Json) -> str:
    return text_at(task, "status", "timestamp") or ""


def token_words(usage: Json) -> str:
    """Numbers of tokens in words, as `1,932 in (1,800 cached), 211 out (64 reasoning)`; empty where there are none."""
    words = []
    for name, word, part, kind in (
        ("inputTokens", "in", "cachedTokens", "cached"),
        ("outputTokens", "out", "reasoningTokens", "reasoning"),
    ):
        count, among = json_at(usage, name), json_at(usage, part)
        if isinstance(count, int):
            words.append(
                f"{count:,} {word} ({among:,} {kind})" if among and isinstance(among, int) else f"{count:,} {word}"
            )
    total = json_at(usage, "totalTokens")
    return ", ".join(words) or (f"{total:,}" if isinstance(total, int) else "")


def first_text(task: Json) -> str:
    """The user's first text, where the agent gives the history."""
    messages = (message for message in objects(task, "history") if message.get("role") == "ROLE_USER")
    return next((text for message in messages if (text := _text(objects(message, "parts")))), "")


def transcript(task: Json) -> Iterator[str]:
    """The messages of a task, its artifacts and the message of its status, line by line."""
    waited = waited_calls(task)
    for message in objects(task, "history"):
        yield from _message_lines(message, waited)
    for artifact in objects(task, "artifacts"):
        name = text_at(artifact, "name")
        yield from _lines("agent" if name is None else f"agent, {visible(name)}", objects(artifact, "parts"), waited)
    closing = json_at(task, "status", "message")
    known = {text_at(message, "messageId") for message in objects(task, "history")}
    if closing is not None and text_at(closing, "messageId") not in known:
        yield from _message_lines(closing, waited)
    if json_at(task, "metadata", "quarantined") is True:
        yield "put aside, because nobody could end it, and without what it had shown: cancel it, or delete its context"


def _message_lines(message: Json, waited: Container[str]) -> Iterator[str]:
    speaker = _SPEAKERS.get(str(json_at(message, "role")), "somebody")
    parts = [part for part in objects(message, "parts") if not repeats_approval(part, message)]
    yield from _lines(speaker, parts, waited)


def _lines(speaker: str, parts: list[dict[str, Json]], waited: Container[str]) -> Iterator[str]:
    """`waited` are the calls whose duration would be that of a person's answer, too."""
    text = _text(parts)
    if text:
        yield f"{speaker}: {visible(text)}"
    for part in parts:
        if tool_call(part) or not _is_text(part):
            began = "" if text_at(part, "data", "id") in waited else None
            yield f"{speaker}: {visible(call_line(part, began) if tool_call(part) else _content(part))}"
