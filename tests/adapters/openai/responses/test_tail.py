"""How much of a request the newest items of a conversation hold."""

from typing import Any

import pytest

from adapters.openai.responses.conversation import match_tail

Items = list[dict[str, Any]]


def user(text: str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "role": "user", "content": content} | fields


def agent(text: str, name: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"id": name, "type": "message", "role": "assistant", "status": "completed", "content": content}


def output(call_id: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": "x"} | fields


def landed(text: str, name: str) -> dict[str, Any]:
    return user(text, id=name, status=None)


def decision(question: str, **fields: Any) -> dict[str, Any]:
    return {"type": "mcp_approval_response", "approval_request_id": question, "approve": True} | fields


A1, U2, A2 = agent("A1", "a1"), landed("2", "u2"), agent("A2", "a2")

HELD: dict[str, tuple[Items, Items, int, Items]] = {
    "nothing landed": ([landed("1", "u1"), A1], [user("2")], 0, []),
    "it landed, with an answer": ([A1, U2, A2], [user("2")], 1, [A2]),
    "it landed, without an answer": ([A1, U2], [user("2")], 1, []),
    "the next message came to it": ([A1, U2, A2], [user("2"), user("3")], 1, [A2]),
    "both landed": ([A1, U2, landed("3", "u3"), A2], [user("2"), user("3")], 2, [A2]),
    "the same text again is not what was said before": ([landed("2", "u1"), A1], [user("2")], 0, []),
    "the same text twice": ([A1, landed("2", "u2"), A2], [user("2"), user("2")], 1, [A2]),
    "an output and a message": ([A1, output("c", id="o1"), U2, A2], [output("c"), user("2")], 2, [A2]),
    "an output of another call": ([A1, output("d", id="o1"), U2], [output("c"), user("2")], 0, []),
    "a decision": ([A1, decision("q", id="d1"), A2], [decision("q")], 1, [A2]),
    "a decision on another question": ([A1, decision("q", id="d1")], [decision("p")], 0, []),
    "somebody else spoke before": ([A1, landed("x", "ux"), agent("X", "ax"), U2, A2], [user("2")], 1, [A2]),
    "somebody else spoke behind": ([A1, U2, A2, landed("x", "ux"), agent("X", "ax")], [user("2")], 1, [A2]),
    "plain text": ([A1, {"id": "u2", "role": "user", "content": "2"}], [user("2")], 1, []),
    "a content that is none": ([A1, {"id": "u2", "role": "user", "content": [7]}], [user("2")], 0, []),
}


@pytest.mark.parametrize(("items", "wanted", "held", "added"), HELD.values(), ids=HELD.keys())
def test_items_after_the_last_completed_call_are_found(items: Items, wanted: Items, held: int, added: Items) -> None:
    assert match_tail(items[::-1], "a1", wanted, whole=False) == (held, added)


def test_without_a_completed_call_everything_counts_from_the_beginning() -> None:
    assert match_tail([A2, U2], None, [user("2")], whole=True) == (1, [A2])
    assert match_tail([], None, [user("2")], whole=True) == (0, [])


def test_a_list_that_does_not_reach_back_far_enough_matches_nothing() -> None:
    assert match_tail([A2, U2], None, [user("2")], whole=False) is None
    assert match_tail([A2, U2], "a1", [user("2")], whole=False) is None
    assert match_tail([A2, U2], "a1", [user("2")], whole=True) is None
