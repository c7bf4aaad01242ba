"""HTTP responses that are no event stream, and their error classes."""

import base64
import html
import json
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from adapters.http.failures import Failures, nothing_sent
from gateway.ports.adapter import AdapterError, ErrorClass
from tests.adapters.http.conftest import KEY, Connect, fault
from tests.adapters.raw_server import Exchange, StartRaw, chunk, plain


def error_body(**error: Any) -> bytes:
    return json.dumps({"error": error}).encode()


class TestAnswers:
    """HTTP answers that are no stream, and their classes."""

    @pytest.mark.parametrize(
        ("status", "body", "kind"),
        [
            ("400 Bad Request", error_body(message="bad", code="invalid_type", param="input"), ErrorClass.REJECTED),
            (
                "400 Bad Request",
                error_body(message="gone", code="previous_response_not_found"),
                ErrorClass.HANDLE_NOT_FOUND,
            ),
            ("404 Not Found", b'{"detail":"Response \'resp_1\' not found."}', ErrorClass.HANDLE_NOT_FOUND),
            ("404 Not Found", error_body(message="no resp_1 here"), ErrorClass.HANDLE_NOT_FOUND),
            (
                "404 Not Found",
                error_body(message="The model does not exist", code="model_not_found"),
                ErrorClass.NOT_SERVED,
            ),
            ("404 Not Found", b"", ErrorClass.NOT_SERVED),
            ("402 Payment Required", b"", ErrorClass.NOT_SERVED),
            ("405 Method Not Allowed", b"", ErrorClass.NOT_SERVED),
            ("408 Request Timeout", b"", ErrorClass.TIMED_OUT),
            ("415 Unsupported Media Type", b"", ErrorClass.REJECTED),
            ("451 Unavailable For Legal Reasons", b"", ErrorClass.POLICY),
            ("400 Bad Request", error_body(message="filtered", code="content_filter"), ErrorClass.POLICY),
            ("400 Bad Request", error_body(message="no", type="ContentPolicyViolationError"), ErrorClass.POLICY),
            ("400 Bad Request", error_body(message="no", code="moderation_blocked"), ErrorClass.POLICY),
            ("500 Oops", error_body(message="no", code="ResponsibleAIPolicyViolation"), ErrorClass.POLICY),
            (
                "400 Bad Request",
                error_body(message="The prompt triggered the content management policy."),
                ErrorClass.POLICY,
            ),
            ("403 Forbidden", error_body(message="Your input was flagged as hateful."), ErrorClass.POLICY),
            (
                "401 Unauthorized",
                error_body(message="usage policies", code="account_deactivated"),
                ErrorClass.UNAUTHORISED,
            ),
            ("400 Bad Request", error_body(message="bad", code="invalid_image_url"), ErrorClass.REJECTED),
            ("400 Bad Request", error_body(message="prompt is too long: 9 tokens > 8"), ErrorClass.OVERFLOW),
            ("400 Bad Request", error_body(message="long", code="string_above_max_length"), ErrorClass.OVERFLOW),
            ("400 Bad Request", error_body(message="The model `m` is disabled."), ErrorClass.NOT_SERVED),
            ("400 Bad Request", error_body(message="no", code="model_decommissioned"), ErrorClass.NOT_SERVED),
            ("400 Bad Request", error_body(message="no", param="model"), ErrorClass.NOT_SERVED),
            ("400 Bad Request", error_body(message="no", param="tools[0].function.name"), ErrorClass.NOT_SERVED),
            ("400 Bad Request", error_body(message="no", param="messages[3].content"), ErrorClass.REJECTED),
            ("400 Bad Request", error_body(message="The model does not support images."), ErrorClass.REJECTED),
            ("503 Unavailable", error_body(message="The model is not available."), ErrorClass.BACKEND_FAILED),
            ("400 Bad Request", error_body(message="in use", code="conversation_locked"), ErrorClass.LOCKED),
            ("409 Conflict", error_body(message="locked"), ErrorClass.LOCKED),
            ("401 Unauthorized", error_body(message="who?"), ErrorClass.UNAUTHORISED),
            ("403 Forbidden", b"<html>no</html>", ErrorClass.UNAUTHORISED),
            ("429 Too Many Requests", error_body(message="slow down"), ErrorClass.RATE_LIMITED),
            ("429 Too Many Requests", error_body(message="pay", code="insufficient_quota"), ErrorClass.NOT_SERVED),
            ("500 Oops", error_body(message="limit", code="rate_limit_exceeded"), ErrorClass.RATE_LIMITED),
            ("400 Bad Request", error_body(message="long", code="context_length_exceeded"), ErrorClass.OVERFLOW),
            (
                "400 Bad Request",
                error_body(message="long", type="exceed_context_size_error", code=400),
                ErrorClass.OVERFLOW,
            ),
            (
                "400 Bad Request",
                b'{"object":"error","message":"This model\'s maximum context length is 8 tokens.","code":400}',
                ErrorClass.OVERFLOW,
            ),
            ("413 Too Large", b"", ErrorClass.OVERFLOW),
            (
                "400 Bad Request",
                error_body(message="no", code="unsupported_parameter", param="previous_response_id"),
                ErrorClass.STORAGE_DISABLED,
            ),
            (
                "400 Bad Request",
                error_body(message="Previous response cannot be used for this organization due to Zero Data Retention"),
                ErrorClass.STORAGE_DISABLED,
            ),
            (
                "400 Bad Request",
                error_body(message="no", code="unsupported_parameter", param="top_p"),
                ErrorClass.NOT_SERVED,
            ),
            ("422 Unprocessable", b'{"detail":[{"loc":["body"],"msg":"field required"}]}', ErrorClass.REJECTED),
            ("500 Oops", b'{"detail":"Internal server error"}', ErrorClass.BACKEND_FAILED),
            ("502 Bad Gateway", b"<html><h1>502</h1></html>", ErrorClass.BACKEND_FAILED),
            ("503 Unavailable", b"", ErrorClass.BACKEND_FAILED),
            ("529 Overloaded", b"", ErrorClass.RATE_LIMITED),
            ("500 Oops", b'{"error":null}', ErrorClass.BACKEND_FAILED),
            ("500 Oops", b'{"error":"a bare text"}', ErrorClass.BACKEND_FAILED),
            ("500 Oops", b"\xff\xfe[" + b"[" * 30_000, ErrorClass.BACKEND_FAILED),
            ("500 Oops", b'{"error":{"code":' + b"[" * 930 + b"]" * 930 + b"}}", ErrorClass.BACKEND_FAILED),
            ("200 OK", b"<!DOCTYPE html><html></html>", ErrorClass.CONTRACT_BROKEN),
            ("200 OK", error_body(message="limit", code="rate_limit_exceeded"), ErrorClass.RATE_LIMITED),
            ("204 No Content", b"", ErrorClass.CONTRACT_BROKEN),
            ("304 Not Modified", b"", ErrorClass.NOT_SERVED),
        ],
    )
    async def test_the_code_decides_then_the_status(
        self, raw: StartRaw, connect: Connect, status: str, body: bytes, kind: ErrorClass
    ) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(plain(status, body, Content_Type="application/json"))

        server = await raw(answer)
        error = await fault(connect(), server.url, handle="resp_1")
        assert error.kind is kind
        assert status[:3] in error.detail
        assert error.retry_after is None

    @pytest.mark.parametrize(
        ("status", "headers", "body", "down"),
        [
            ("502 Bad Gateway", {}, b"<html><h1>502</h1></html>", True),
            ("503 Unavailable", {}, b"", True),
            ("504 Gateway Timeout", {}, b"", True),
            ("503 Unavailable", {"Retry_After": "2"}, b"", False),
            ("503 Unavailable", {}, error_body(message="no", code="slow_down"), False),
            ("500 Oops", {}, b"", False),
            ("529 Overloaded", {}, b"", False),
            ("429 Too Many Requests", {}, b"", False),
        ],
    )
    async def test_a_proxy_reports_that_the_service_is_down(
        self, raw: StartRaw, connect: Connect, status: str, headers: dict[str, str], body: bytes, down: bool
    ) -> None:
        server = await raw(lambda exchange: exchange.send(plain(status, body, **headers)))
        assert (await fault(connect(), server.url)).backend_down is down

    async def test_404_is_not_about_a_handle_that_was_not_sent(self, raw: StartRaw, connect: Connect) -> None:
        body = b'{"detail":"Response not found"}'
        server = await raw(lambda exchange: exchange.send(plain("404 Not Found", body)))
        assert (await fault(connect(), server.url)).kind is ErrorClass.NOT_SERVED

    @pytest.mark.parametrize(
        ("status", "headers", "seconds"),
        [
            ("429 Too Many Requests", {"Retry_After": "7"}, 7.0),
            ("429 Too Many Requests", {"Retry_After": " 0.5 "}, 0.5),
            (
                "429 Too Many Requests",
                {"Retry_After": "Fri, 20 Nov 2026 12:00:30 GMT", "Date": "Fri, 20 Nov 2026 12:00:00 GMT"},
                30.0,
            ),
            (
                "429 Too Many Requests",
                {"Retry_After": "Fri, 20 Nov 2026 11:00:00 GMT", "Date": "Fri, 20 Nov 2026 12:00:00 -0000"},
                0.0,
            ),
            ("429 Too Many Requests", {"Retry_After": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
            ("429 Too Many Requests", {"Retry_After": "soon"}, None),
            ("429 Too Many Requests", {"Retry_After": "-1"}, None),
            ("503 Unavailable", {"Retry_After": "2"}, 2.0),
        ],
    )
    async def test_the_time_to_wait_is_in_seconds(
        self, raw: StartRaw, connect: Connect, status: str, headers: dict[str, str], seconds: float | None
    ) -> None:
        server = await raw(lambda exchange: exchange.send(plain(status, b"{}", **headers)))
        error = await fault(connect(), server.url)
        assert (error.kind, error.retry_after) == (ErrorClass.RATE_LIMITED, seconds)

    async def test_a_redirect_is_not_followed_and_the_key_stays_here(self, raw: StartRaw, connect: Connect) -> None:
        elsewhere = await raw(lambda exchange: exchange.stream(b"data: 1\n\n"))
        redirect = plain("307 Temporary Redirect", Location=f"{elsewhere.url}/v1")
        server = await raw(lambda exchange: exchange.send(redirect))
        error = await fault(connect(), server.url)
        assert error.kind is ErrorClass.NOT_SERVED
        assert elsewhere.url in error.detail
        assert elsewhere.connections == 0

    async def test_a_compressed_answer_is_refused_unread(self, raw: StartRaw, connect: Connect) -> None:
        for status, kind in (("200 OK", ErrorClass.CONTRACT_BROKEN), ("500 Oops", ErrorClass.BACKEND_FAILED)):
            bomb = plain(status, b"\x1f\x8b", Content_Type="text/event-stream", Content_Encoding="gzip")
            server = await raw(lambda exchange, bomb=bomb: exchange.send(bomb))  # type: ignore[misc]
            assert (await fault(connect(), server.url)).kind is kind

    async def test_an_error_without_end_is_read_only_at_its_beginning(self, raw: StartRaw, connect: Connect) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n")
            while not exchange.writer.is_closing():
                await exchange.send(chunk(b"word " * 10_000))

        server = await raw(answer)
        error = await fault(connect(), server.url)
        assert error.kind is ErrorClass.BACKEND_FAILED
        assert error.detail.startswith("HTTP 500: word word")
        assert len(error.detail) == 300

    async def test_an_error_that_is_cut_still_has_its_status(self, raw: StartRaw, connect: Connect) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(b'HTTP/1.1 401 No\r\nContent-Length: 1000\r\n\r\n{"error":')
            exchange.writer.close()

        server = await raw(answer)
        assert (await fault(connect(), server.url)).kind is ErrorClass.UNAUTHORISED

    @pytest.mark.parametrize("quoted", [KEY, "sk-proj-************cdef", f"Bearer {KEY}, twice: {KEY}"])
    async def test_the_key_is_masked_however_it_is_quoted(self, raw: StartRaw, connect: Connect, quoted: str) -> None:
        body = error_body(message=f"Incorrect API key provided: {quoted} .\nFind yours", code="invalid_api_key")
        server = await raw(lambda exchange: exchange.send(plain("401 Unauthorized", body)))
        detail = (await fault(connect(), server.url)).detail
        assert "sk-proj" not in detail
        assert "cdef" not in detail
        assert detail.startswith("HTTP 401: invalid_api_key: Incorrect API key provided: ")
        assert detail.endswith("*** . Find yours")


@pytest.mark.parametrize(
    "spelt",
    [
        json.dumps('a"b\\c<&d+/=0123'),
        html.escape('a"b\\c<&d+/=0123'),
        html.escape('a"b\\c<&d+/=0123', quote=False),
        quote('a"b\\c<&d+/=0123', safe=""),
        urlencode({"client_secret": 'a"b\\c<&d+/=0123'}),
        base64.b64encode(b'a"b\\c<&d+/=0123').decode(),
    ],
)
def test_a_secret_is_masked_in_any_spelling_of_a_service(spelt: str) -> None:
    detail = Failures(('a"b\\c<&d+/=0123',)).error(ErrorClass.UNAUTHORISED, f"not {spelt} here").detail
    assert "0123" not in detail
    assert "***" in detail
    assert spelt.strip('"')[-8:] not in detail


@pytest.mark.parametrize("short", ["", "k", "ok", "bad"])
def test_a_text_stays_readable_beside_a_secret_of_less_than_four_characters(short: str) -> None:
    text = "the kind of token is bad, look"
    assert Failures((short, KEY)).error(ErrorClass.UNAUTHORISED, text).detail == text


@pytest.mark.parametrize("secrets", [("4bcd", "4bcd5678", KEY), (KEY, "4bcd5678", "4bcd")])
def test_a_secret_that_is_a_part_of_another_leaves_nothing_of_it(secrets: tuple[str, ...]) -> None:
    detail = Failures(secrets).error(ErrorClass.UNAUTHORISED, f"4bcd and 4bcd5678 and {KEY}").detail
    assert detail == "*** and *** and ***"


def test_a_secret_with_spaces_is_masked_whole() -> None:
    assert Failures(("Key of the team",)).detail("Key of the team; Key ofX") == "***; ***"


def test_a_secret_that_comes_at_run_time_is_masked_until_many_others_have_come() -> None:
    failures = Failures((KEY,))
    failures.hide("token-a", "token-b")
    assert failures.detail(f"token-a token-b {KEY}") == "*** *** ***"
    failures.hide(*(f"other-{number}" for number in range(15)))
    assert failures.detail(f"token-a token-b other-14 {KEY}") == "token-a *** *** ***"


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (ErrorClass.INTERRUPTED, ErrorClass.UNREACHABLE),
        (ErrorClass.TIMED_OUT, ErrorClass.UNREACHABLE),
        (ErrorClass.BACKEND_FAILED, ErrorClass.UNREACHABLE),
        (ErrorClass.RATE_LIMITED, ErrorClass.RATE_LIMITED),
        (ErrorClass.HANDLE_EXPIRED, ErrorClass.HANDLE_EXPIRED),
        (ErrorClass.CONTRACT_BROKEN, ErrorClass.NOT_SERVED),
        (ErrorClass.REJECTED, ErrorClass.NOT_SERVED),
        (ErrorClass.OVERFLOW, ErrorClass.NOT_SERVED),
        (ErrorClass.POLICY, ErrorClass.NOT_SERVED),
    ],
)
def test_a_request_without_a_message_has_left_no_message(kind: ErrorClass, told: ErrorClass) -> None:
    with pytest.raises(AdapterError) as caught, nothing_sent():
        raise AdapterError(kind, "503", retry_after=7.0, backend_down=True)
    error = caught.value
    assert (error.kind, error.detail, error.retry_after, error.backend_down) == (told, "503", 7.0, True)
