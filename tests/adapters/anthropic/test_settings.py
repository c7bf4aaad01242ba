"""Settings of an agent of type `anthropic`: what is refused, what stays secret, and what follows from them."""

from typing import Any

import pytest
from pydantic import ValidationError

from adapters.anthropic.settings import AnthropicSettings
from tests.adapters.emulator_support import KEY


def settings(**values: Any) -> AnthropicSettings:
    return AnthropicSettings.model_validate({"model": "m"} | values)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"model": ""}, "at least 1 character"),
        ({"history": {"owner": "backend"}}, "keeps no conversation"),
        ({"api_key": "a", "auth": {"type": "api_key", "key": "b"}}, "exclude each other"),
        ({"thinking": {"type": "enabled"}}, "'budget_tokens'"),
        ({"thinking": {"type": "adaptive", "budget_tokens": 2000}}, "'budget_tokens'"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1}}, "greater than or equal to 1024"),
        ({"thinking": {"type": "enabled", "budget_tokens": 8192}}, "below max_tokens, which is 8192"),
        ({"temperature": 1.5}, "less than or equal to 1"),
        ({"cache": "2h"}, "'5m', '1h' or 'none'"),
        ({"service_tools": [{"name": "f"}]}, "needs a `type`"),
        ({"service_tools": [{"type": "custom", "name": "f"}]}, "run at the client"),
        ({"service_tools": [{"type": "bash_20250124", "name": "bash"}]}, "run at the client"),
        ({"betas": ["a,b"]}, "should match pattern"),
        ({"api_version": ""}, "should match pattern"),
        ({"extra_body": {"messages": []}}, "must not set 'messages'"),
        ({"extra_body": {"max_tokens": 1}}, "must not set 'max_tokens'"),
        ({"extra_body": {"tools": []}}, "must not set 'tools'"),
        ({"extra_body": {"thinking": {}}}, "must not set 'thinking'"),
        ({"mcp_servers": [{"name": "a", "url": "https://a.example"}] * 2}, "two of mcp_servers are called 'a'"),
        ({"extra_body": {"cache_control": {"type": "ephemeral"}}}, "must not set 'cache_control'"),
        ({"nope": 1}, "Extra inputs"),
    ],
)
def test_what_cannot_work_is_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError) as caught:
        settings(**values)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "url", ["https://x.example", "https://x.example/", "https://x.example/v1", "https://x.example/v1/"]
)
def test_the_version_at_the_end_of_the_address_makes_no_difference(url: str) -> None:
    assert settings(base_url=url).base_url == "https://x.example"


def test_a_budget_above_the_limit_of_an_answer_is_right_where_thinking_is_interleaved() -> None:
    budget = {"type": "enabled", "budget_tokens": 9000}
    assert settings(thinking=budget, betas=["interleaved-thinking-2025-05-14"]).thinking is not None


@pytest.mark.parametrize(
    ("values", "repeats"),
    [
        ({}, True),
        ({"service_tools": [{"type": "code_execution_20250825", "name": "code_execution"}]}, False),
        ({"mcp_servers": [{"name": "a", "url": "https://a.example"}]}, False),
        ({"service_tools": [{"type": "web_search_20250305", "name": "web_search"}], "repeat_unknown": True}, True),
        ({"repeat_unknown": False}, False),
    ],
)
def test_a_request_whose_tools_the_service_runs_is_not_repeated(values: dict[str, Any], repeats: bool) -> None:
    assert settings(**values).repeatable is repeats


def test_keys_and_tokens_are_secrets() -> None:
    server = {"name": "a", "url": "https://a.example", "authorization_token": "tok-0123456789"}
    given = settings(api_key=KEY, mcp_servers=[server], headers={"x-tenant": "hdr-secret-1"})
    assert set(given.secrets()) == {KEY, "tok-0123456789", "hdr-secret-1"}
    assert KEY in list(settings(auth={"type": "api_key", "key": KEY}).secrets())
    assert KEY not in repr(given)
    assert "tok-0123456789" not in repr(given)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ([], "mcp-client-2025-11-20"),
        (["mcp-client-2026-09-15"], "mcp-client-2026-09-15"),
        (["x"], "x,mcp-client-2025-11-20"),
    ],
)
def test_mcp_servers_need_a_beta_which_may_be_another(given: list[str], sent: str) -> None:
    server = {"name": "a", "url": "https://a.example"}
    headers = settings(mcp_servers=[server], betas=given).service_headers
    assert headers == {"anthropic-version": "2023-06-01", "anthropic-beta": sent}


def test_accounts_differ_by_key_and_by_headers() -> None:
    accounts = {settings().account, settings(api_key=KEY).account, settings(api_key=KEY, headers={"a": "b"}).account}
    assert len(accounts) == 3
