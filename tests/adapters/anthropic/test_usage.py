"""Reports of tokens are merged within a message, and added up over the messages of one answer."""

import pytest

from adapters.anthropic.usage import added, merged
from gateway.a2a.model import Json


@pytest.mark.parametrize(
    ("earlier", "later", "whole"),
    [
        (None, None, None),
        (None, "?", None),
        ({"a": 1}, None, {"a": 1}),
        (None, {"a": None}, {"a": None}),
        ({"a": 1, "b": 2}, {"a": None, "b": 3}, {"a": 1, "b": 3}),
    ],
)
def test_a_number_of_a_message_is_the_latest_that_was_reported(earlier: Json, later: Json, whole: Json) -> None:
    assert merged(earlier, later) == whole


@pytest.mark.parametrize(
    ("one", "other", "total"),
    [
        (None, None, None),
        ({"a": 1}, None, {"a": 1}),
        (None, {"a": 1}, {"a": 1}),
        ({"a": 1, "b": 2}, {"a": 3, "c": 4}, {"a": 4, "b": 2, "c": 4}),
        (
            {"server_tool_use": {"web_search_requests": 1}, "service_tier": "standard"},
            {"server_tool_use": {"web_search_requests": 2}, "service_tier": None},
            {"server_tool_use": {"web_search_requests": 3}, "service_tier": "standard"},
        ),
        ({"a": True}, {"a": True}, {"a": True}),
    ],
)
def test_the_messages_of_an_answer_are_added_up(one: Json, other: Json, total: Json) -> None:
    assert added(one, other) == total
