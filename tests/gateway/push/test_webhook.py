"""The headers of a notification."""

import base64

import pytest
from msgspec.structs import replace

from gateway.foundation.sealing import UnreadableSecret
from gateway.ledger.push import PushConfig
from gateway.push.secrets import SecretBox, Secrets
from gateway.push.signatures import Signer
from gateway.push.webhook import Outcome, WebhookRequests, webhook_id

BOX = SecretBox(b"k" * 32)
URL = "https://hook.example/a"
PLAIN = PushConfig("task-1", "config-1", "1.0", URL, "hook.example", None, None)
BODY = b"{}"


def sealed(scheme: str | None, token: str | None = None, credentials: str | None = None) -> PushConfig:
    return replace(PLAIN, scheme=scheme, sealed=BOX.seal(Secrets(token, credentials), URL))


def test_a_configuration_without_secrets_has_the_type_and_the_headers_of_a_webhook() -> None:
    assert WebhookRequests(BOX).headers(PLAIN, 7, BODY, 1_795_000_000) == {
        "Content-Type": "application/a2a+json",
        "A2A-Version": "1.0",
        "webhook-id": webhook_id(PLAIN, 7),
        "webhook-timestamp": "1795000000",
    }


def test_the_id_depends_on_event_and_configuration_and_not_on_the_attempt() -> None:
    ids = {
        webhook_id(PLAIN, 7),
        webhook_id(PLAIN, 8),
        webhook_id(replace(PLAIN, id="config-2"), 7),
        webhook_id(replace(PLAIN, task="task-2"), 7),
    }
    assert len(ids) == 4
    assert webhook_id(PLAIN, 7) == webhook_id(replace(PLAIN, url="https://other.example"), 7)


@pytest.mark.parametrize(
    ("scheme", "credentials", "header"),
    [
        ("Bearer", "abc", "Bearer abc"),
        ("ApiKey", "abc", "ApiKey abc"),
        ("Basic", "YTpi", "Basic YTpi"),
        ("basic", "ada:secret", f"basic {base64.b64encode(b'ada:secret').decode()}"),
    ],
)
def test_credentials_become_the_authorization_header(scheme: str, credentials: str, header: str) -> None:
    headers = WebhookRequests(BOX).headers(sealed(scheme, "tok", credentials), 1, BODY, 1)
    assert (headers["Authorization"], headers["X-A2A-Notification-Token"]) == (header, "tok")


def test_a_scheme_without_credentials_authorises_nothing() -> None:
    assert "Authorization" not in WebhookRequests(BOX).headers(sealed("Bearer", "tok"), 1, BODY, 1)


def test_a_signature_is_sent_with_credentials_and_is_the_bearer_token_without_them() -> None:
    letters = WebhookRequests(BOX, Signer(b"m" * 32, "https://gateway.example"))
    beside = letters.headers(sealed("Bearer", credentials="abc"), 1, BODY, 1)
    alone = letters.headers(replace(PLAIN, scheme="Bearer"), 1, BODY, 1)
    assert beside["Authorization"] == "Bearer abc"
    assert beside["X-A2A-Notification-Signature"].count(".") == 2
    assert alone["Authorization"] == f"Bearer {alone['X-A2A-Notification-Signature']}"


def test_secrets_sealed_with_another_key_make_no_request() -> None:
    with pytest.raises(UnreadableSecret):
        WebhookRequests(SecretBox(b"x" * 32)).headers(sealed("Bearer", "tok"), 1, BODY, 1)


@pytest.mark.parametrize(
    ("status", "delivered", "unwanted"),
    [
        (200, True, False),
        (204, True, False),
        (302, False, False),
        (410, False, True),
        (500, False, False),
        (None, False, False),
    ],
)
def test_only_success_is_delivered_and_only_gone_is_unwanted(
    status: int | None, delivered: bool, unwanted: bool
) -> None:
    outcome = Outcome(status)
    assert (outcome.delivered, outcome.unwanted) == (delivered, unwanted)


def test_the_text_of_an_outcome() -> None:
    assert (str(Outcome(503)), str(Outcome(None, "timed out"))) == ("HTTP 503", "timed out")
