"""The interrupts of a graph: which are questions for an approval, and how each is answered. Law: an interrupt is answered under
its id, in the form in which it asks; in any other form it is a question, whose answer is the caller's next message.

Source: the middleware `HumanInTheLoopMiddleware` of langchain 1.5.2 (one interrupt for all calls of a message, or one for
each), and `HumanInterrupt` of langgraph-prebuilt 1.1.3, which LangChain's agent inbox shows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from adapters.langgraph.wire import Interrupt, json_text
from gateway.a2a.model import Json, Part
from gateway.ports.adapter import ApprovalAsked
from gateway.ports.conversation import OutputItem

GRAPH = "graph"
"""The name of the server of the graph's tools, towards callers."""

_WORDS = ("question", "prompt", "message", "text", "description", "title", "query")
_RESPOND = "respond"
Form = Literal["value", "decisions", "decision", "response", "responses", "respond", "respond-decisions"]


class Action(msgspec.Struct, frozen=True):
    """A call that the graph asks about. `call` is the id of the model's call, where the interrupt names it."""

    name: str
    arguments: str
    call: str = ""


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """An open interrupt. `form` is that of its answer. `actions` are the calls that it asks approval for: none for a question.
    `ignores` and `responds` say what a no may be, where the graph does not ask for a decision. `words` are those for the
    caller."""

    id: str
    form: Form = "value"
    actions: tuple[Action, ...] = ()
    ignores: bool = False
    responds: bool = False
    words: str = ""

    def question(self, index: int, run: str) -> str:
        """The id of the question about one of the actions. A graph may ask again under the same id of an interrupt."""
        return f"{run}/{self.id}/{index}"


def read(interrupt: Interrupt, *, approvals: bool) -> Asked:
    """`approvals`: whether a question of a known form is one for an approval."""
    value = interrupt.value
    asked = _approval(interrupt) if approvals else None
    return asked or Asked(interrupt.id, words=_words(value))


def approvals_of(asked: Sequence[Asked], run: str) -> Iterator[ApprovalAsked]:
    for each in asked:
        for index, action in enumerate(each.actions):
            yield ApprovalAsked(each.question(index, run), action.name, action.arguments, GRAPH)


def question_parts(interrupt: Interrupt, asked: Asked) -> tuple[Part, ...]:
    """The question for the caller: its words, and the value where that is more than words."""
    value = interrupt.value
    text = (Part(text=asked.words),) if asked.words else ()
    if isinstance(value, str) and text:
        return text
    schema = {"responseSchema": interrupt.response_schema} if interrupt.response_schema is not None else None
    return (*text, Part(data=value, metadata=schema))


def decide(asked: Asked, run: str, decisions: Mapping[str, OutputItem], words: str = "") -> Json:
    """The answer to a question for approvals. A call without a decision is not approved. `words` are the caller's,
    beside a no."""
    given = [decisions.get(asked.question(index, run)) for index in range(len(asked.actions))]
    answers = [_decision(asked, item, words) for item in given]
    match asked.form:
        case "decisions":
            return {"decisions": answers}
        case "responses":
            return answers
    return answers[0]


def respond(asked: Asked, answer: Json) -> Json:
    """The answer to a question, in the form in which it is asked."""
    if asked.form in ("respond", "respond-decisions"):
        text = answer if isinstance(answer, str) else json_text(answer)
        reply = {"type": _RESPOND, "message": text}
        return reply if asked.form == "respond" else {"decisions": [reply]}
    return answer


def _decision(asked: Asked, item: OutputItem | None, words: str) -> Json:
    approved = item is not None and item.approved is True
    reason = words or (item.output if item is not None and isinstance(item.output, str) else "")
    if asked.form in ("response", "responses"):
        if approved:
            return {"type": "accept", "args": None}
        ignored = asked.ignores and not (words and asked.responds)
        return {"type": "ignore", "args": None} if ignored else {"type": "response", "args": reason}
    if approved:
        return {"type": "approve"}
    return {"type": "reject", "message": reason} if reason else {"type": "reject"}


def _approval(interrupt: Interrupt) -> Asked | None:
    match interrupt.value:
        case {"action_requests": [_, *_] as actions, "review_configs": configs}:
            return _batch(interrupt.id, actions, _allowed_by_name(configs))
        case {"type": "tool_approval", "tool_call_id": str(call), "name": str(name), "args": args}:
            action = Action(name, json_text(args), call)
            return _reviewed(interrupt.id, [action], [_allowed_by_schema(interrupt.response_schema)], interrupt.value)
        case {"action_request": {"action": str()}}:
            return _inbox(interrupt.id, [interrupt.value], "response")
        case [{"action_request": {"action": str()}}, *_] as requests:
            return _inbox(interrupt.id, requests, "responses")
    return None


def _batch(name: str, requests: Sequence[Any], allowed: Mapping[str, frozenset[str]]) -> Asked | None:
    actions = []
    for request in requests:
        match request:
            case {"name": str(action), **rest}:
                actions.append(Action(action, json_text(rest.get("args", {}))))
            case _:
                return None
    may = [allowed.get(action.name, frozenset()) for action in actions]
    asked = _reviewed(name, actions, may, requests[0])
    if asked is None:
        return None
    return msgspec.structs.replace(asked, form="respond-decisions" if asked.form == "respond" else "decisions")


def _reviewed(name: str, actions: Sequence[Action], allowed: Sequence[frozenset[str]], request: Json) -> Asked | None:
    """An approval where each call can be approved; a question where a person answers in the tool's place."""
    if all(not may or "approve" in may for may in allowed):
        return Asked(name, "decision", tuple(actions))
    if len(actions) == 1 and _RESPOND in allowed[0]:
        return Asked(name, "respond", words=_words(request))
    return None


def _inbox(name: str, requests: Sequence[Any], form: Form) -> Asked | None:
    actions, configs = [], []
    for request in requests:
        match request:
            case {"action_request": {"action": str(action), **rest}, "config": {"allow_accept": True} as config}:
                actions.append(Action(action, json_text(rest.get("args", {}))))
                configs.append(config)
            case _:
                return None
    ignores, responds = (all(config.get(f"allow_{way}") is True for config in configs) for way in ("ignore", "respond"))
    return Asked(name, form, tuple(actions), ignores=ignores, responds=responds)


def _allowed_by_name(configs: Json) -> dict[str, frozenset[str]]:
    allowed = {}
    for config in configs if isinstance(configs, list) else ():
        match config:
            case {"action_name": str(name), "allowed_decisions": [*decisions]}:
                allowed[name] = frozenset(decision for decision in decisions if isinstance(decision, str))
    return allowed


def _allowed_by_schema(schema: Json) -> frozenset[str]:
    """The decisions of the schema of an answer; none where the schema does not tell."""
    match schema:
        case {"discriminator": {"mapping": {**mapping}}}:
            return frozenset(map(str, mapping))
        case {"properties": {"type": {"const": str(only)}}}:
            return frozenset((only,))
    return frozenset()


def _words(value: Json) -> str:
    if isinstance(value, str):
        return value
    found: Iterable[Json] = (value.get(name) for name in _WORDS) if isinstance(value, dict) else ()
    return next((text for text in found if isinstance(text, str) and text), "")
