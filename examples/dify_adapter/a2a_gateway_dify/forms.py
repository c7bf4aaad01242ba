"""Forms of Human Input nodes: as a question to the caller, and the caller's answer as a submission. No IO."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
from gateway.a2a.model import Json, Message, Part

_MOST = 16


class Form(msgspec.Struct, frozen=True):
    """A form that waits. `token` None: it is answered elsewhere (by mail), never over the API."""

    content: str
    token: str | None = None
    inputs: tuple[dict[str, Any], ...] = ()
    actions: tuple[dict[str, Any], ...] = ()
    defaults: dict[str, Any] = {}


class Pending(msgspec.Struct, frozen=True):
    """What a paused run waits for."""

    run: str
    forms: tuple[Form, ...]


class Waiting(msgspec.Struct, frozen=True):
    """The paused runs of a conversation, by the tasks that show their forms; sealed because of the tokens.

    The gateway keeps one such value for a conversation, and another task may begin in it while one waits."""

    tasks: dict[str, Pending] = {}

    def but(self, task: str, pending: Pending | None = None) -> "Waiting":
        others = {name: one for name, one in self.tasks.items() if name != task}
        if pending is not None:
            others[task] = pending
        return Waiting(dict(list(others.items())[-_MOST:]))  # a task that was cancelled never takes its form away


@dataclass(frozen=True, slots=True)
class Submission:
    action: str
    inputs: dict[str, Any]
    files: tuple[str, ...] = ()
    """Names of the inputs that take the files of the message."""
    lists: frozenset[str] = field(default_factory=frozenset)


def form(data: dict[str, Any]) -> Form:
    token, defaults = data.get("form_token"), data.get("resolved_default_values")
    return Form(
        content=str(data.get("form_content") or data.get("node_title") or ""),
        token=token if isinstance(token, str) and token else None,
        inputs=tuple(entry for entry in data.get("inputs") or () if isinstance(entry, dict)),
        actions=tuple(entry for entry in data.get("actions") or () if isinstance(entry, dict)),
        defaults=defaults if isinstance(defaults, dict) else {},
    )


def question(form: Form, modes: tuple[str, ...], before: str = "") -> tuple[Part, ...]:
    """The form as text, and as data for a client that shows it as a form. Never the token."""
    lines = [before] if before else []
    lines.append(form.content)
    if form.token is None:
        lines.append("This is answered elsewhere. Write again when that is done.")
        return (Part(text="\n\n".join(lines)),)
    names = [f"{entry.get('output_variable_name')} ({entry.get('type')})" for entry in form.inputs]
    if names:
        lines.append("Fields: " + ", ".join(names))
    choices = [f"{action.get('id')} ({action.get('title') or action.get('id')})" for action in form.actions]
    if choices:
        lines.append("Answer with one of: " + ", ".join(choices) + (", then your text" if names else ""))
    text = Part(text="\n\n".join(line for line in lines if line))
    if modes and "application/json" not in modes:
        return (text,)
    shown = {
        "form": {"content": form.content, "inputs": form.inputs, "actions": form.actions, "defaults": form.defaults}
    }
    return (text, Part(data=msgspec.to_builtins(shown), media_type="application/json"))


def submission(form: Form, message: Message) -> Submission | None:
    """None: the message does not say which action is meant."""
    known = {str(action.get("id")) for action in form.actions}
    kinds = {str(entry.get("output_variable_name")): entry.get("type") for entry in form.inputs}
    files = tuple(name for name, kind in kinds.items() if kind in ("file", "file-list"))
    lists = frozenset(name for name, kind in kinds.items() if kind == "file-list")
    for part in message.parts:
        if isinstance(part.data, dict) and part.data.get("action") in known:
            given = part.data.get("inputs")
            inputs = {**form.defaults, **(given if isinstance(given, dict) else {})}
            return Submission(str(part.data["action"]), inputs, files, lists)
    text = "\n".join(part.text for part in message.parts if part.text is not None).strip()
    found = _action(form, text)
    if found is None:
        return None
    action, rest = found
    inputs = dict(form.defaults)
    texts = [name for name, kind in kinds.items() if kind in ("paragraph", "select")]
    if rest and texts:
        inputs[texts[0]] = rest
    return Submission(action, inputs, files, lists)


def _action(form: Form, text: str) -> tuple[str, str] | None:
    names = [
        (str(name), str(action.get("id")))
        for action in form.actions
        for name in (action.get("id"), action.get("title"))
        if name
    ]
    for name, action in sorted(names, key=lambda pair: -len(pair[0])):
        if text.casefold().startswith(name.casefold()):
            rest = text[len(name) :]
            if not rest or not (rest[0].isalnum() or rest[0] == "_"):
                return action, rest.lstrip(" :,.;-\n\t")
    if len(form.actions) == 1 and text:
        return str(form.actions[0].get("id")), text
    return None


def waiting(secret: Json) -> Waiting:
    try:
        return msgspec.convert(secret, Waiting)
    except msgspec.ValidationError:
        return Waiting()
