"""One whole response."""

from gateway.http.reply import A2A_JSON, Reply
from tests.interaction import asgi


async def test_a_reply_says_its_type_and_length() -> None:
    answer = await asgi.request(Reply(b"{}", 404, A2A_JSON, ((b"x-more", b"1"),)), "GET", "/")

    assert answer == asgi.Answer(
        404, (("content-type", "application/a2a+json"), ("content-length", "2"), ("x-more", "1")), b"{}"
    )


async def test_a_reply_without_a_body_has_no_type() -> None:
    assert await asgi.request(Reply(b"", 304), "GET", "/") == asgi.Answer(304, (("content-length", "0"),), b"")


async def test_head_gets_the_headers_alone() -> None:
    answer = await asgi.request(Reply(b"{}"), "HEAD", "/")

    assert answer == asgi.Answer(200, (("content-type", "application/json"), ("content-length", "2")), b"")
