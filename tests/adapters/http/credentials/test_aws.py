"""Signatures of Amazon Web Services: over the bytes that are sent, with the keys that the chain finds."""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from adapters.http.client import HttpClient
from adapters.http.credentials.settings import AwsAuth
from adapters.http.credentials.signing import signing_of
from adapters.http.failures import Failures
from adapters.http.settings import Timeouts
from gateway.ports.adapter import AdapterError, ErrorClass
from tests.adapters.http.conftest import batches
from tests.adapters.raw_server import Exchange, Received, StartRaw, plain
from tests.support.refusing import refusing_port

pytest.importorskip("botocore")

_ID, _SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
_VARIABLES = (
    *("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_SESSION_TOKEN"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
)


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without keys, and the file for its profiles."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "config"
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return file


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", _ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", _SECRET)


@pytest.fixture
def profile(config: Path) -> None:
    lines = (
        "[profile work]",
        "region = us-west-2",
        "aws_access_key_id = AKIDPROFILE",
        "aws_secret_access_key = of-profile",
    )
    config.write_text("\n".join(lines))


def signature(method: str, target: str, headers: dict[str, str], body: bytes, scope: str, secret: str) -> str:
    """Source: AWS, Create a signed request, steps 1 to 5, for every service but S3."""
    path, _, query = target.partition("?")
    pairs = sorted("=".join(pair.partition("=")[::2]) for pair in query.split("&") if pair)
    lines = "".join(f"{name}:{' '.join(value.split())}\n" for name, value in sorted(headers.items()))
    canonical = "\n".join(
        (
            *(method, quote(path, safe="/~"), "&".join(pairs)),
            *(lines, ";".join(sorted(headers)), hashlib.sha256(body).hexdigest()),
        )
    )
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    to_sign = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{digest}"
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, to_sign.encode(), "sha256").hex()


def signature_of(request: Received, secret: str) -> tuple[str, str]:
    """The signature that a request has, and the one that the service computes."""
    authorization = request.header("Authorization") or ""
    fields = dict(field.partition("=")[::2] for field in authorization.removeprefix("AWS4-HMAC-SHA256 ").split(", "))
    scope = fields["Credential"].partition("/")[2]
    headers = {name: request.header(name) or "" for name in fields["SignedHeaders"].split(";")}
    method, target = request.head.split()[:2]
    return fields["Signature"], signature(method, target, headers, request.body, scope, secret)


@asynccontextmanager
async def client(**values: Any) -> AsyncIterator[HttpClient]:
    settings = AwsAuth.model_validate({"type": "aws", "service": "bedrock", "region": "eu-central-1", **values})
    failures = Failures(settings.secrets())
    http = HttpClient(Timeouts(), failures, {}, signing=signing_of(settings, failures, Timeouts()))
    try:
        yield http
    finally:
        await http.aclose()


async def _hear(exchange: Exchange) -> None:
    await exchange.stream(b"data: 1\n\n")


def test_the_service_of_these_tests_computes_what_aws_publishes() -> None:
    """Source: AWS Signature Version 4 test suite, `get-vanilla` and `get-vanilla-query-order-key-case`."""
    headers = {"host": "example.amazonaws.com", "x-amz-date": "20150830T123600Z"}
    scope = "20150830/us-east-1/service/aws4_request"
    assert [
        signature("GET", target, headers, b"", scope, _SECRET) for target in ("/", "/?Param2=value2&Param1=value1")
    ] == [
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ]


class TestSignatures:
    """What is signed."""

    @pytest.mark.parametrize(
        "target",
        [
            "/model/anthropic.claude-v1%3A0/converse-stream",
            "/model/arn%3Aaws%3Abedrock%2Fx/invoke?b=2&a=1&c",
            "/a b/é~",
            "/",
        ],
    )
    async def test_the_signature_is_about_the_bytes_that_are_sent(self, raw: StartRaw, keys: None, target: str) -> None:
        server = await raw(_hear)
        async with client() as http:
            await batches(http, f"{server.url}{target}", b'{"a":1}')
            async with http.stream(f"{server.url}{target}") as stream:
                assert [batch async for batch in stream] == [[b"1"]]
        for request in server.requests:
            sent, expected = signature_of(request, _SECRET)
            assert sent == expected
        authorization = server.requests[0].header("Authorization") or ""
        assert f"Credential={_ID}/" in authorization
        assert "/eu-central-1/bedrock/aws4_request, SignedHeaders=host;x-amz-date, " in authorization

    async def test_a_session_token_is_sent_and_signed(
        self, raw: StartRaw, keys: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", "token-of-the-session")
        server = await raw(_hear)
        async with client() as http:
            await batches(http, server.url)
        [request] = server.requests
        assert request.header("X-Amz-Security-Token") == "token-of-the-session"
        assert "SignedHeaders=host;x-amz-date;x-amz-security-token" in (request.header("Authorization") or "")
        sent, expected = signature_of(request, _SECRET)
        assert sent == expected


class TestKeys:
    """Where keys come from."""

    async def test_a_profile_gives_keys_and_region(self, raw: StartRaw, profile: None) -> None:
        server = await raw(_hear)
        async with client(profile="work", region=None) as http:
            await batches(http, server.url)
        [request] = server.requests
        assert "Credential=AKIDPROFILE/" in (request.header("Authorization") or "")
        assert "/us-west-2/bedrock/" in (request.header("Authorization") or "")
        sent, expected = signature_of(request, "of-profile")
        assert sent == expected

    @pytest.mark.parametrize(
        ("lives", "asked"), [(timedelta(hours=6), 1), (timedelta(minutes=5), 4)], ids=["long", "short"]
    )
    async def test_keys_of_a_role_are_kept_until_shortly_before_their_end(
        self, raw: StartRaw, monkeypatch: pytest.MonkeyPatch, lives: timedelta, asked: int
    ) -> None:
        async def role(exchange: Exchange) -> None:
            number = len(metadata.requests)
            body = {
                "AccessKeyId": f"ASIA{number}",
                "SecretAccessKey": "of-the-role",
                "Token": f"token-of-role-{number}",
                "Expiration": (datetime.now(UTC) + lives).strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
            await exchange.send(plain("200 OK", msgspec.json.encode(body)))

        metadata, server = await raw(role), await raw(_hear)
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{metadata.url}/role")
        async with client() as http:
            for _ in range(3):
                await batches(http, server.url)
        assert len(metadata.requests) == asked
        assert server.requests[-1].header("X-Amz-Security-Token") == f"token-of-role-{asked}"

    async def test_many_first_requests_find_the_keys_once(self, raw: StartRaw, monkeypatch: pytest.MonkeyPatch) -> None:
        async def role(exchange: Exchange) -> None:
            end = (datetime.now(UTC) + timedelta(hours=6)).strftime("%Y-%m-%dT%H:%M:%SZ")
            body = {"AccessKeyId": "ASIA", "SecretAccessKey": "of-the-role", "Token": "t", "Expiration": end}
            await exchange.send(plain("200 OK", msgspec.json.encode(body)))

        metadata, server = await raw(role), await raw(_hear)
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{metadata.url}/role")
        async with client() as http, asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(batches(http, server.url))
        assert len(metadata.requests) == 1


class TestWithoutKeys:
    """What is missing, wrong or down."""

    async def test_a_machine_without_keys_is_told_where_they_are_looked_for(self) -> None:
        async with client() as http:
            with pytest.raises(AdapterError) as caught:
                await batches(http, "http://127.0.0.1:1")
        assert caught.value.kind is ErrorClass.UNAUTHORISED
        where = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile, or give the host a role"
        assert caught.value.detail == f"no AWS keys: Unable to locate credentials; {where}"

    async def test_a_role_that_cannot_be_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{refusing_port()}/role")
        monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
        async with client() as http:
            with pytest.raises(AdapterError) as caught:
                await batches(http, "http://127.0.0.1:1")
        assert caught.value.kind is ErrorClass.UNREACHABLE

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"region": None}, "need a region: in `region`, AWS_DEFAULT_REGION or the profile"),
            ({"region": None, "profile": "none"}, "The config profile \\(none\\) could not be found"),
            ({"profile": "none"}, "The config profile \\(none\\) could not be found"),
        ],
    )
    def test_what_cannot_work_is_refused_when_the_agent_is_built(self, given: dict[str, Any], words: str) -> None:
        auth = AwsAuth.model_validate({"type": "aws", "service": "bedrock", "region": "eu-central-1", **given})
        with pytest.raises(ValueError, match=words):
            signing_of(auth, Failures(()), Timeouts())

    async def test_no_text_and_no_line_of_a_log_shows_a_key(
        self, raw: StartRaw, keys: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        token = "token-of-the-session"
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
        server = await raw(lambda exchange: exchange.send(plain("403 Forbidden", f"{token} {_SECRET}".encode())))
        async with client() as http:
            with pytest.raises(AdapterError) as caught:
                await batches(http, server.url)
        assert (caught.value.kind, caught.value.detail) == (ErrorClass.UNAUTHORISED, "HTTP 403: *** ***")
        assert not [record for record in caplog.records if record.name.startswith("botocore")]
