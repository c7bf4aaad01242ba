"""Numbered sources: their shape, their numbers, and the sources that old turns keep."""

import json
from typing import Any

import pytest

from gateway.a2a.model import Message, Part, Role
from gateway.core.citations import NO_SOURCE, NONE_CITED, drop_uncited, last_source_number, number_sources
from gateway.ports.conversation import AssistantItem, HistoryRecord, Item, OutputItem, UserItem


def source(number: Any, text: str = "x") -> dict[str, Any]:
    return {"source_number": number, "content": text}


UNKNOWN: list[Any] = [
    None,
    "",
    "plain text",
    "a text about source_number",
    '{"source_number": 1}',
    [],
    {},
    [1, 2],
    ["source_number"],
    [source(1), {"content": "no number"}],
    [source(1), "text"],
    [source("1")],
    [source(True)],
    [source(-1)],
    {"sources": [source(1)], "more": 1},
    {"a": {"b": [source(1)]}},
    json.dumps([source(1), 2]),
]


@pytest.mark.parametrize("output", UNKNOWN)
def test_what_is_no_list_of_sources_is_left_untouched(output: Any) -> None:
    assert number_sources(output, 4) == (output, 4)
    records = turn(1, output, "[source99]") + turn(2, "running", None)
    assert outputs(drop_uncited(records, "turn-2")) == [output, "running"]
    assert last_source_number(records) == NO_SOURCE


@pytest.mark.parametrize("shape", ["list", "member", "text", "member in text"])
def test_sources_are_numbered_on_from_the_last_one_and_keep_their_shape(shape: str) -> None:
    assert number_sources(shaped(shape, source(0, "a"), source(7, "b")), NO_SOURCE) == (
        shaped(shape, source(0, "a"), source(1, "b")),
        1,
    )
    assert number_sources(shaped(shape, source(0)), 41) == (shaped(shape, source(42)), 42)


@pytest.mark.parametrize("shape", ["list", "member", "text", "member in text"])
@pytest.mark.parametrize(
    ("answer", "left"),
    [
        ("As [source1] says.", [1]),
        ("[SOURCE2], and [Source0] too, twice [source0].", [0, 2]),
        ("[source1][source2][source0]", [0, 1, 2]),
        ("[source 1] and source1 and [source12]", []),
        ("nothing", []),
        ("", [0, 1, 2]),
        (None, [0, 1, 2]),
    ],
)
def test_an_old_turn_keeps_the_sources_that_its_answer_cites(shape: str, answer: str | None, left: list[int]) -> None:
    found = shaped(shape, *map(source, range(3)))
    records = turn(1, found, answer) + turn(2, found, None)
    expected = shaped(shape, *map(source, left)) if left else NONE_CITED
    assert outputs(drop_uncited(records, "turn-2")) == [expected, found]
    assert records[1].item == OutputItem("c", found)


def test_a_source_that_a_later_answer_cites_stays() -> None:
    records = turn(1, [source(0), source(1)], "well") + turn(2, [source(2)], "[source1]") + turn(3, "", None)
    assert outputs(drop_uncited(records, "turn-3")) == [[source(1)], NONE_CITED, ""]


def test_what_is_said_before_the_tools_is_no_answer_to_what_they_found() -> None:
    said = record(1, 1, AssistantItem((Part(text="Let me look for [source0]."),)))
    records = [said, *turn(1, [source(0), source(1)], None), *turn(2, "", None)]
    assert outputs(drop_uncited(records, "turn-2"))[0] == [source(0), source(1)]


def test_a_result_that_is_an_error_is_left_as_it_is() -> None:
    failed = record(1, 2, OutputItem("c", [source(0)], error=True))
    records = [failed, record(1, 3, AssistantItem((Part(text="no"),))), *turn(2, "", None)]
    assert drop_uncited(records, "turn-2") == records


def test_the_last_number_is_the_highest_of_all_turns() -> None:
    records = turn(1, [source(3), source(9)], "x") + turn(2, json.dumps([source(4)]), None)
    assert (last_source_number(records), last_source_number([])) == (9, NO_SOURCE)


def shaped(shape: str, *entries: dict[str, Any]) -> Any:
    value: Any = {"result": list(entries)} if "member" in shape else list(entries)
    return json.dumps(value, separators=(",", ":")) if "text" in shape else value


def record(number: int, position: int, item: Item) -> HistoryRecord:
    return HistoryRecord(position, number, item, turn_id=f"turn-{number}")


def turn(number: int, output: Any, answer: str | None) -> list[HistoryRecord]:
    """A question, the result of its tool, and perhaps an answer."""
    asked = UserItem(Message(message_id="m", role=Role.USER, parts=(Part(text="?"),)))
    items: list[Item] = [asked, OutputItem("c", output)]
    if answer is not None:
        items.append(AssistantItem((Part(text=answer),)))
    return [record(number, number * 10 + index, item) for index, item in enumerate(items)]


def outputs(records: list[HistoryRecord]) -> list[Any]:
    return [each.item.output for each in records if isinstance(each.item, OutputItem)]
