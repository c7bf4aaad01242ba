"""Documents for caches: which requests are told that nothing has changed."""

import asyncio
import threading
from datetime import UTC, datetime

import pytest

from gateway.http.documents import CachedDocument, LateDocument, private_document
from gateway.http.reply import Reply
from tests.interaction import asgi

STARTED = datetime(2026, 11, 20, 10, 0, 0, 700_000, UTC)
DATE = "Fri, 20 Nov 2026 10:00:00 GMT"


async def status(document: CachedDocument, method: str = "GET", **headers: str) -> int:
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    answer = await asgi.request(document, method, "/", named)
    assert answer.body == (b"body" if (method, answer.status) == ("GET", 200) else b"")
    assert answer.header("last-modified") == DATE
    # A 304 with a length would say that the document has none.
    assert answer.header("content-length") == ("4" if answer.status == 200 else None)
    return answer.status


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("since", "expected"),
    [
        (DATE, 304),
        ("Fri, 20 Nov 2026 10:00:01 GMT", 304),
        ("Fri, 20 Nov 2026 09:59:59 GMT", 200),
        ("Friday, 20-Nov-26 10:00:00 GMT", 304),
        ("Fri, 20 Nov 2026 12:00:00 +0200", 200),
        ("Fri, 20 Nov 2026 10:00:00 -0000", 200),
        ("yesterday", 200),
        ("Fri, 99 Nov 2026 10:00:00 GMT", 200),
        ("\xff", 200),
        ("", 200),
    ],
)
async def test_a_document_that_is_no_newer_is_not_sent_again(method: str, since: str, expected: int) -> None:
    assert await status(CachedDocument(b"body", STARTED), method, if_modified_since=since) == expected


async def test_a_tag_that_does_not_fit_wins_over_a_date_that_does() -> None:
    document = CachedDocument(b"body", STARTED)
    assert await status(document, if_none_match='"other"', if_modified_since=DATE) == 200
    assert await status(document, if_none_match="*", if_modified_since="Fri, 20 Nov 2020 10:00:00 GMT") == 304


async def test_bodies_that_say_the_same_have_one_weak_tag() -> None:
    one, two, other = [
        await asgi.request(CachedDocument(body, STARTED, alike=alike), "GET", "/")
        for body, alike in ((b"a1", b"a"), (b"a2", b"a"), (b"b1", b"b"))
    ]
    assert one.header("etag") == two.header("etag") != other.header("etag")
    assert (one.header("etag") or "").startswith('W/"')


async def test_a_document_of_one_caller_is_for_its_own_cache() -> None:
    scope = asgi.scope_of("GET", "/", [])
    whole = private_document(Reply(b"body", headers=((b"a2a-extensions", b"x"),)), scope)
    headers = dict(whole.headers)
    assert (headers[b"cache-control"], headers[b"a2a-extensions"]) == (b"private, no-cache", b"x")
    assert headers[b"vary"] == b"authorization, x-api-key, a2a-version, accept"
    known = asgi.scope_of("GET", "/", [("if-none-match", headers[b"etag"].decode())])
    assert private_document(Reply(b"body"), known).status == 304
    assert private_document(Reply(b"changed"), known).status == 200


async def test_a_late_document_is_made_once_for_all_that_wait_and_not_in_the_event_loop() -> None:
    threads: list[threading.Thread] = []

    def make(state: str) -> CachedDocument:
        threads.append(threading.current_thread())
        return CachedDocument(state.encode(), STARTED)

    document = LateDocument(make, lambda: "body")
    answers = await asyncio.gather(*(asgi.request(document, "GET", "/") for _ in range(3)))
    assert [answer.body for answer in answers] == [b"body"] * 3
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_a_late_document_is_made_again_when_its_state_is_another() -> None:
    states = iter(("one", "one", "two"))
    made: list[str] = []

    def make(state: str) -> CachedDocument:
        made.append(state)
        return CachedDocument(state.encode(), STARTED)

    document = LateDocument(make, lambda: next(states))
    told = [(await asgi.request(document, "GET", "/")).body for _ in range(3)]
    assert (told, made) == ([b"one", b"one", b"two"], ["one", "two"])


async def test_a_late_document_that_cannot_be_made_is_tried_again() -> None:
    faults = [OSError("gone")]

    def make(_: None) -> CachedDocument:
        if faults:
            raise faults.pop()
        return CachedDocument(b"body", STARTED)

    document = LateDocument(make, lambda: None)
    with pytest.raises(OSError, match="gone"):
        await asgi.request(document, "GET", "/")
    assert (await asgi.request(document, "GET", "/")).body == b"body"
