"""The forms of `auth:`: what each needs, and what no text shows."""

import re
import sys
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from adapters.http.credentials.settings import Auth
from adapters.http.credentials.signing import headers_of, signing_of
from adapters.http.failures import Failures
from adapters.http.settings import Timeouts

_auth: TypeAdapter[Any] = TypeAdapter(Auth)

_OAUTH2 = {"type": "oauth2", "token_url": "https://sts/token", "client_id": "me", "client_secret": "hidden-secret"}
_ENTRA = {"type": "entra", "scope": "https://ai.azure.com/.default"}
_APPLICATION = {"identity": "client_secret", "tenant_id": "t", "client_id": "c", "client_secret": "hidden-secret"}


@pytest.mark.parametrize(
    ("given", "headers"),
    [
        ({}, {"Authorization": "Bearer hidden-key"}),
        ({"header": "x-api-key"}, {"x-api-key": "hidden-key"}),
        ({"header": "authorization", "scheme": ""}, {"authorization": "hidden-key"}),
        ({"scheme": "Token"}, {"Authorization": "Token hidden-key"}),
        ({"header": "X-Key", "scheme": "Key"}, {"X-Key": "Key hidden-key"}),
    ],
)
def test_a_key_goes_in_any_header_behind_any_word(given: dict[str, str], headers: dict[str, str]) -> None:
    auth = _auth.validate_python({"type": "api_key", "key": "hidden-key", **given})
    assert headers_of(auth) == headers
    assert signing_of(auth, Failures(()), Timeouts()) is None
    assert list(auth.secrets()) == ["hidden-key"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "Unable to extract tag using discriminator 'type'"),
        ({"type": "kerberos"}, "'api_key', 'oauth2', 'entra', 'aws'"),
        ({"type": "api_key"}, "key\n  Field required"),
        ({"type": "api_key", "key": "a\nb"}, "one line of visible ASCII characters"),
        ({"type": "api_key", "key": "k", "header": "a b"}, "is no name of a header"),
        ({"type": "api_key", "key": "k", "header": "Host", "scheme": "a b"}, "must be one word"),
        ({"type": "api_key", "key": "k", "header": "Content-Length"}, "is decided by the gateway"),
        ({**_OAUTH2, "token_url": "sts/token"}, "must be an address"),
        ({**_OAUTH2, "client_secret": ""}, "at least 1"),
        ({**_ENTRA, "identity": "client_secret", "tenant_id": "t"}, "needs `client_id`, `client_secret`"),
        ({**_ENTRA, **_APPLICATION, "token_file": "f"}, "cannot be used with `token_file`"),
        ({**_ENTRA, "identity": "managed", "tenant_id": "t", "authority": "https://x"}, "`tenant_id`, `authority`"),
        ({"type": "aws"}, "service\n  Field required"),
    ],
)
def test_a_form_that_cannot_work_is_refused_and_says_why(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _auth.validate_python(given)
    assert words in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [{"type": "api_key", "key": "hidden-key"}, _OAUTH2, {**_ENTRA, **_APPLICATION}],
    ids=["api_key", "oauth2", "entra"],
)
def test_no_text_quotes_a_secret_of_the_settings(given: dict[str, Any]) -> None:
    auth = _auth.validate_python(given)
    assert "hidden" not in f"{auth!r} {auth.model_dump_json()}"
    secrets = list(auth.secrets())
    assert secrets
    assert all("hidden" in secret for secret in secrets)


@pytest.mark.parametrize(
    "given",
    [
        {"type": "api_key", "key": "k"},
        {**_OAUTH2, "parameters": {"audience": "x"}},
        {**_ENTRA, **_APPLICATION},
        {"type": "aws", "service": "bedrock"},
    ],
    ids=["api_key", "oauth2", "entra", "aws"],
)
def test_agents_with_the_same_credentials_share_an_account(given: dict[str, Any]) -> None:
    one, same = _auth.validate_python(given), _auth.validate_python(given)
    assert len({one, same}) == 1


@pytest.mark.parametrize(
    ("given", "package", "extra"),
    [
        ({**_ENTRA, "identity": "managed"}, "azure.identity", "azure"),
        ({"type": "aws", "service": "bedrock"}, "botocore", "aws"),
    ],
    ids=["entra", "aws"],
)
def test_without_its_package_a_form_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], package: str, extra: str
) -> None:
    monkeypatch.delitem(sys.modules, f"adapters.http.credentials.{given['type']}", raising=False)
    for name in [name for name in sys.modules if name.startswith(package)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=re.escape(f"install it with: pip install 'a2a-gateway[{extra}]'")) as caught:
        signing_of(_auth.validate_python(given), Failures(()), Timeouts())
    assert str(caught.value).startswith(f"credentials of type {given['type']} need the package")
