"""Masks as a property: a value under a masked name is in no event, however large the result and whatever its encoding."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.a2a.model import Json
from gateway.a2a.redaction import json_path
from gateway.a2a.tool_calls import ENDS, GOOD_ENDS, CallFacts, Phase, Place, Rendering, respond, update
from gateway.core.tools.toolset import beginning_of, bounded, cleaned
from gateway.ports.tools import ToolOutput
from tests.tool_call_vectors import as_event, faults

CALL = CallFacts("call_1", "look", 0, 0, "gateway", None, "2026-11-20T10:00:00.000Z")
PLACE = Place("t", "c", "2026-11-20T10:00:01.000Z", lambda: "m")
SECRET = "s3cr3tXq"
NAMES = ["api_key", "apiKey", "API-Key", "Api Key", "ａpi_key"]

names = st.sampled_from(NAMES)
words = st.text(st.sampled_from('ab {["\\:\né€'), max_size=5)
others = st.dictionaries(st.sampled_from(["id", "note", "x"]), st.one_of(st.integers(), st.none(), words), max_size=3)
secrets = st.sampled_from([SECRET, SECRET * 50, [SECRET], {"v": [SECRET]}, json.dumps({"v": SECRET})])


def holder(before: dict[str, Json], name: str, secret: Json, after: dict[str, Json]) -> dict[str, Json]:
    return {**before, name: secret, **{key: value for key, value in after.items() if key not in before}}


holders = st.builds(holder, others, names, secrets, others)
"""An object with the secret in it, at any place among other members."""

ENCODINGS: list[Callable[[Any], str]] = [
    json.dumps,
    lambda value: json.dumps(value, indent=1, ensure_ascii=False),
    lambda value: json.dumps(json.dumps(value)),
    lambda value: "\ufeff" + json.dumps(value),
    lambda value: json.dumps({"x": 1}) + "\n" + json.dumps(value) + "\n",
    lambda value: "\x1e" + json.dumps(value) + "\n\x1e" + json.dumps([1]),
    lambda value: json.dumps(value) + "," + json.dumps("x"),
    lambda value: "".join(f"\\u{ord(c):04x}" if c in "ek" else c for c in json.dumps(value)),
    lambda value: json.dumps(value)[:-1] + ", }",
    lambda value: json.dumps(value) + " that is all",
    lambda value: f"Found:\n```json\n{json.dumps(value)}\n```",
    lambda value: f"data: {json.dumps(value)}\n\n",
    str,
]
encoded = st.builds(lambda encode, value: encode(value), st.sampled_from(ENCODINGS), holders)
cut = st.builds(lambda text, share: text[: int(len(text) * share)], encoded, st.floats(0, 1))


def around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(lambda a, b: [*a, b, *a], st.lists(words, max_size=2), inner),
        st.builds(lambda more, value: {**more, "content": value}, others, inner),
        st.builds(lambda value: {"content": [{"type": "text", "text": value}]}, inner),
        st.builds(lambda encode, value: encode(value), st.sampled_from(ENCODINGS), inner),
    )


results = st.recursive(st.one_of(holders, encoded, cut), around, max_leaves=3)
limits = st.integers(1, 3000)
phases = st.sampled_from(sorted(ENDS))
anything = settings(max_examples=200)


def shown(phase: str, detail: Any, rendering: Rendering) -> str:
    made = update(CALL, phase, detail, rendering, PLACE)
    assert made is not None
    event = as_event(made)
    assert faults(event) == []
    return json.dumps(event)


@anything
@given(results, phases, limits)
def test_no_result_shows_what_is_masked_at_any_depth(result: Json, phase: str, limit: int) -> None:
    rendering = Rendering(redact=(json_path("$..api_key"),), max_result=limit)
    assert SECRET not in shown(phase, result, rendering)


@anything
@given(results, phases, limits, limits)
def test_no_result_that_was_cut_for_the_model_shows_what_is_masked(
    result: Json, phase: str, kept: int, limit: int
) -> None:
    rendering = Rendering(redact=(json_path("$..api_key"),), max_result=limit)
    whole = cleaned(ToolOutput(result))
    assert SECRET not in shown(phase, respond(phase, whole.output, rendering, kept), rendering)
    output = bounded(whole, kept).output
    beginning = beginning_of(output)
    assert SECRET not in shown(
        phase, output if isinstance(beginning, type(beginning_of(None))) else beginning, rendering
    )


@anything
@given(st.one_of(holders, encoded, cut), phases, limits)
def test_a_path_to_a_member_of_the_result_masks_it_in_every_encoding(result: Json, phase: str, limit: int) -> None:
    rendering = Rendering(redact=(json_path("$.response.api_key"),), max_result=limit)
    assert SECRET not in shown(phase, result, rendering)


@anything
@given(results, st.sampled_from(sorted(ENDS - GOOD_ENDS)), limits)
def test_a_path_to_a_member_of_the_result_masks_it_wherever_a_failure_tells_it(
    result: Json, phase: str, limit: int
) -> None:
    rendering = Rendering(redact=(json_path("$.response.api_key"),), max_result=limit)
    assert SECRET not in shown(phase, result, rendering)


@anything
@given(st.one_of(encoded, cut), phases, limits)
def test_no_text_of_a_tool_is_shown_where_all_of_it_is_masked(text: str, phase: str, limit: int) -> None:
    rendering = Rendering(redact=(json_path("$.response.result"),), max_result=limit)
    assert SECRET not in shown(phase, text, rendering)


@anything
@given(st.lists(st.one_of(holders, encoded, cut), min_size=1, max_size=3), st.booleans())
def test_no_argument_in_a_list_shows_what_is_masked(values: list[Json], whole: bool) -> None:
    path, arguments = ("$.args.api_key", values) if whole else ("$.args.to.api_key", {"to": values})
    rendering = Rendering(redact=(json_path(path),))
    assert SECRET not in shown(Phase.REQUESTED, json.dumps(arguments), rendering)


@anything
@given(st.one_of(encoded, cut), phases)
def test_no_name_of_a_member_shows_what_is_masked(name: str, phase: str) -> None:
    held = {"a": 1, name: 2}
    begins = name.lstrip("\ufeff\x1e \n").startswith(("{", "[", '"'))
    rendering = Rendering(redact=(json_path("$..api_key"),))
    for detail in (held, json.dumps(held)):
        assert not begins or SECRET not in shown(phase, detail, rendering)


@anything
@given(st.one_of(encoded, cut), st.sampled_from(["$..api_key", "$.args.api_key"]))
def test_no_arguments_show_what_is_masked(arguments: str, path: str) -> None:
    assert SECRET not in shown(Phase.REQUESTED, arguments, Rendering(redact=(json_path(path),)))


@anything
@given(results)
def test_arguments_that_hold_such_texts_do_not_show_what_is_masked(value: Json) -> None:
    arguments = json.dumps({"body": value})
    assert SECRET not in shown(Phase.REQUESTED, arguments, Rendering(redact=(json_path("$..api_key"),)))
