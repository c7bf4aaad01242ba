"""Reports of tokens, in the words of each wire, and their sums."""

from typing import Any

import pytest

from gateway.core import usage
from gateway.core.usage import NONE
from gateway.ledger.calls import Complete, Fail
from gateway.ledger.states import ServiceCallStatus
from gateway.ledger.tasks import Usage

REPORTS: dict[str, tuple[dict[str, Any], Usage]] = {
    "Responses": (
        {
            "input_tokens": 120,
            "input_tokens_details": {"cached_tokens": 100},
            "output_tokens": 30,
            "output_tokens_details": {"reasoning_tokens": 10},
            "total_tokens": 150,
        },
        Usage(120, 100, 30, 10, 150),
    ),
    "Responses without details": ({"input_tokens": 9, "output_tokens": 1}, Usage(9, None, 1, None, 10)),
    "Chat Completions": (
        {
            "prompt_tokens": 120,
            "completion_tokens": 30,
            "total_tokens": 150,
            "prompt_tokens_details": {"cached_tokens": 100, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 10, "accepted_prediction_tokens": 0},
        },
        Usage(120, 100, 30, 10, 150),
    ),
    "Chat Completions of a small server": (
        {"prompt_tokens": 18, "completion_tokens": 3, "total_tokens": 21, "prompt_tokens_details": None},
        Usage(18, None, 3, None, 21),
    ),
    "only a total": ({"total_tokens": 21}, Usage(total_tokens=21)),
    "LangChain": (
        {
            "input_tokens": 120,
            "output_tokens": 30,
            "total_tokens": 150,
            "input_token_details": {"cache_read": 100},
            "output_token_details": {"reasoning": 10},
        },
        Usage(120, 100, 30, 10, 150),
    ),
    "Anthropic": (
        {"input_tokens": 15, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5, "output_tokens": 30},
        Usage(120, 100, 30, None, 150),
    ),
    "Anthropic, with thinking": (
        {
            "input_tokens": 15,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 5,
            "output_tokens": 30,
            "output_tokens_details": {"thinking_tokens": 10},
        },
        Usage(120, 100, 30, 10, 150),
    ),
    "Anthropic, by LiteLLM": (
        {
            "prompt_tokens": 120,
            "completion_tokens": 30,
            "total_tokens": 150,
            "prompt_tokens_details": {"cached_tokens": 100},
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 5,
        },
        Usage(120, 100, 30, None, 150),
    ),
    "DeepSeek": (
        {
            "prompt_tokens": 120,
            "completion_tokens": 30,
            "total_tokens": 150,
            "prompt_cache_hit_tokens": 100,
            "prompt_cache_miss_tokens": 20,
            "completion_tokens_details": {"reasoning_tokens": 10},
        },
        Usage(120, 100, 30, 10, 150),
    ),
    "DeepSeek, in OpenAI's words too": (
        {
            "prompt_tokens": 120,
            "completion_tokens": 30,
            "total_tokens": 150,
            "prompt_tokens_details": {"cached_tokens": 100},
            "prompt_cache_hit_tokens": 100,
            "prompt_cache_miss_tokens": 20,
        },
        Usage(120, 100, 30, None, 150),
    ),
    "Moonshot": (
        {"prompt_tokens": 120, "completion_tokens": 30, "total_tokens": 150, "cached_tokens": 100},
        Usage(120, 100, 30, None, 150),
    ),
    "Mistral": (
        {
            "prompt_tokens": 120,
            "completion_tokens": 30,
            "total_tokens": 150,
            "num_cached_tokens": 100,
            "prompt_audio_seconds": None,
        },
        Usage(120, 100, 30, None, 150),
    ),
    "OpenRouter": (
        {
            "prompt_tokens": 120,
            "completion_tokens": 30,
            "total_tokens": 150,
            "cost": 0.001,
            "is_byok": False,
            "prompt_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 0, "audio_tokens": 0},
            "cost_details": {"upstream_inference_cost": None},
            "completion_tokens_details": {"reasoning_tokens": 10},
        },
        Usage(120, 100, 30, 10, 150),
    ),
    "Groq": (
        {
            "queue_time": 0.02,
            "prompt_tokens": 120,
            "prompt_time": 0.005,
            "completion_tokens": 30,
            "completion_time": 0.02,
            "total_tokens": 150,
            "total_time": 0.03,
            "prompt_tokens_details": {"cached_tokens": 100},
            "completion_tokens_details": {"reasoning_tokens": 10},
        },
        Usage(120, 100, 30, 10, 150),
    ),
    "xAI, whose output is without the reasoning": (
        {
            "prompt_tokens": 120,
            "completion_tokens": 20,
            "total_tokens": 150,
            "prompt_tokens_details": {"text_tokens": 120, "cached_tokens": 100},
            "completion_tokens_details": {"reasoning_tokens": 10, "accepted_prediction_tokens": 0},
            "num_sources_used": 0,
        },
        Usage(120, 100, 30, 10, 150),
    ),
    "Perplexity": (
        {
            "prompt_tokens": 120,
            "completion_tokens": 30,
            "total_tokens": 150,
            "search_context_size": "low",
            "reasoning_tokens": 10,
        },
        Usage(120, None, 30, 10, 150),
    ),
    "Gemini's OpenAI-compatible endpoint": (
        {"completion_tokens": 9, "prompt_tokens": 6, "total_tokens": 1234},
        Usage(6, None, 9, None, 1234),
    ),
    "Anthropic's OpenAI-compatible endpoint": (
        {
            "prompt_tokens": 18,
            "completion_tokens": 3,
            "total_tokens": 21,
            "prompt_tokens_details": None,
            "completion_tokens_details": None,
        },
        Usage(18, None, 3, None, 21),
    ),
    "Bedrock": (
        {"inputTokens": 20, "outputTokens": 30, "totalTokens": 150, "cacheReadInputTokens": 100},
        Usage(120, 100, 30, None, 150),
    ),
    "Gemini": (
        {
            "promptTokenCount": 120,
            "cachedContentTokenCount": 100,
            "candidatesTokenCount": 20,
            "thoughtsTokenCount": 10,
            "totalTokenCount": 150,
        },
        Usage(120, 100, 30, 10, 150),
    ),
}


@pytest.mark.parametrize("wire", REPORTS)
def test_a_report_is_read_in_the_words_of_its_wire(wire: str) -> None:
    report, expected = REPORTS[wire]
    assert usage.read(report) == expected


@pytest.mark.parametrize(
    "report",
    [
        None,
        {},
        [],
        "150",
        {"tokens": 7},
        {"input_tokens": "12", "output_tokens": None},
        {"input_tokens": -1, "output_tokens": 1.5, "total_tokens": True},
        {"prompt_tokens": 2**60},
        {"input_tokens_details": [{"cached_tokens": 1}]},
        {"prompt_tokens": None, "prompt_tokens_details": {"cached_tokens": {"a": 1}}},
    ],
    ids=str,
)
def test_what_is_no_report_counts_as_none(report: Any) -> None:
    assert usage.read(report) is NONE


def test_a_sum_has_the_numbers_that_were_reported() -> None:
    one, two = Usage(1, None, 2, None, 3), Usage(10, 5, None, None, 10)
    assert usage.total([one, two]) == Usage(11, 5, 2, None, 13)
    assert usage.total([]) is NONE
    assert usage.total([NONE, one, NONE]) is one


def test_calls_that_failed_count_too() -> None:
    done = Complete("t", 1, "turn", "call", None, None, None, {"input_tokens": 1}, (), (), (), 0)
    failed = Fail("t", 1, "turn", "call", ServiceCallStatus.FAILED, "x", (), 0, {"input_tokens": 2})
    assert usage.reported([done, failed]) == Usage(input_tokens=3)


def test_metadata_show_what_was_reported_and_are_read_back() -> None:
    turn, task = Usage(1, 0, 2, None, 3), Usage(5, 0, 5, None, 10)
    shown = usage.in_metadata(turn, task)
    assert shown == {
        "usage": {
            "turn": {"inputTokens": 1, "cachedTokens": 0, "outputTokens": 2, "totalTokens": 3},
            "task": {"inputTokens": 5, "cachedTokens": 0, "outputTokens": 5, "totalTokens": 10},
        }
    }
    assert usage.shown_in(shown) == turn
    assert usage.in_metadata(NONE, NONE) == {}
    assert usage.in_metadata(NONE, task) == {"usage": {"task": shown["usage"]["task"]}}


@pytest.mark.parametrize(
    "metadata", [None, {}, {"usage": 3}, {"usage": {"turn": []}}, {"usage": {"task": {}}}], ids=str
)
def test_other_metadata_show_no_tokens(metadata: Any) -> None:
    assert usage.shown_in(metadata) is None


def test_a_value_that_is_nested_too_deep_is_not_kept() -> None:
    report = REPORTS["Responses"][0]
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"more": deep}
    assert usage.storable(report) is report
    assert usage.storable(None) is None
    assert usage.storable(deep) is None
