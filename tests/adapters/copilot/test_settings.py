"""Settings: what an agent needs to be reached, and what contradicts itself."""

from typing import Any

import pytest
from pydantic import ValidationError

from adapters.copilot.settings import CopilotSettings, EngineSettings

LINE = {"secret": "line-secret"}
ENVIRONMENT = "01234567-89ab-cdef-0123-456789abcdef"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "either `direct_line` or `direct_to_engine`"),
        ({"direct_line": LINE, "direct_to_engine": {"url": "https://x/conversations"}}, "either `direct_line` or"),
        ({"direct_line": {}}, "one of `secret`, `token_endpoint` and `token`"),
        ({"direct_line": {"secret": "a", "token": "b"}}, "one of `secret`, `token_endpoint` and `token`"),
        ({"direct_to_engine": {}}, "either `url`, or `environment_id` and `schema_name`"),
        ({"direct_to_engine": {"environment_id": ENVIRONMENT}}, "either `url`, or `environment_id`"),
        ({"direct_to_engine": {"url": "https://x", "schema_name": "a"}}, "either `url`, or `environment_id`"),
        ({"direct_to_engine": {"environment_id": "a/b?c=d", "schema_name": "a"}}, "the id of an environment"),
        (
            {"direct_to_engine": {"url": "https://x", "token": "t", "auth": {"type": "api_key", "key": "k"}}},
            "'token' and 'auth' exclude each other",
        ),
        ({"direct_line": LINE, "locale": "en US"}, "a locale such as en-US"),
        ({"direct_line": {**LINE, "url": "https://x?y"}}, "must have no query"),
        ({"direct_line": {**LINE, "quiet": "10ms"}}, "greater than or equal to 0.1"),
        ({"direct_line": LINE, "model": "m"}, "not permitted"),
    ],
)
def test_settings_that_cannot_work_are_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        CopilotSettings.model_validate(given)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        (
            {"environment_id": ENVIRONMENT, "schema_name": "cr1_bot"},
            (
                "https://0123456789abcdef0123456789abcd.ef.environment.api.powerplatform.com"
                "/copilotstudio/dataverse-backed/authenticated/bots/cr1_bot/conversations"
            ),
        ),
        (
            {"environment_id": f"Default-{ENVIRONMENT}", "schema_name": "a b", "cloud": "gov"},
            (
                "https://default0123456789abcdef0123456789abcde.f.environment.api.gov.powerplatform.microsoft.us"
                "/copilotstudio/dataverse-backed/authenticated/bots/a%20b/conversations"
            ),
        ),
        ({"url": "http://host:1/bots/x/conversations?api-version=1"}, "http://host:1/bots/x/conversations"),
        ({"url": "http://host:1/bots/x/conversations/c1"}, "http://host:1/bots/x/conversations"),
        ({"url": "http://host:1/bots/x/"}, "http://host:1/bots/x/conversations"),
    ],
)
def test_the_address_of_an_agent_is_that_of_the_vendors_client(given: dict[str, Any], address: str) -> None:
    assert EngineSettings.model_validate(given).conversations == address


def test_agents_with_other_credentials_have_other_accounts() -> None:
    one, other = (CopilotSettings.model_validate({"direct_line": {"secret": each}}) for each in ("a", "b"))
    assert one.account != other.account
    assert one.account == CopilotSettings.model_validate({"direct_line": {"secret": "a"}}).account


def test_every_credential_is_a_secret() -> None:
    settings = CopilotSettings.model_validate({"direct_line": {"token": "tok-1"}, "headers": {"x-key": "key-1"}})
    assert set(settings.secrets()) >= {"tok-1", "key-1"}
    engine = CopilotSettings.model_validate({"direct_to_engine": {"url": "https://x", "token": "tok-2"}})
    assert "tok-2" in set(engine.secrets())
    assert "tok-1" not in repr(settings)
