"""Who gets in, what every answer says, and which forms count."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.foundation.clock import Clock
from gateway.ledger.api_keys import RevokeKey
from gateway.ui import addresses
from gateway.ui.security import POLICY
from gateway.ui.visit import Outcome, Visit
from tests.gateway.ui.visitor import Visitor, make_key, visiting
from tests.running import Local, StartLocal, local_gateway

AGENTS = 'echo: {type: python, ref: "gateway.cli.demo.agent:reply"}'
KEYS = "auth: {mode: any_of, api_keys: {enabled: true}}"
PAGES = ("/ui/", "/ui/contexts", "/ui/deliveries", "/ui/keys", "/ui/playground", "/ui/agents/echo", "/ui/tasks/x")


@pytest.fixture
async def keyed(start_local: StartLocal) -> Local:
    return await start_local(AGENTS, settings=KEYS)


@pytest.fixture
async def visitor(keyed: Local) -> AsyncIterator[Visitor]:
    async with visiting(keyed) as visitor:
        yield visitor


@pytest.fixture
async def open_visitor(start_local: StartLocal) -> AsyncIterator[Visitor]:
    async with visiting(await start_local(AGENTS)) as visitor:
        yield visitor


# --- off


async def test_pages_that_are_off_are_nowhere(start_local: StartLocal) -> None:
    async with visiting(await start_local(AGENTS, settings="ui: {enabled: false}")) as visitor:
        for path in ("/ui", *PAGES, "/ui/login", "/ui/static/x/pages.css"):
            assert (await visitor.http.get(path)).status_code == 404


async def test_pages_are_off_where_anybody_can_reach_them(tmp_path: Path) -> None:
    settings = "server: {host: 0.0.0.0}"
    async with local_gateway(AGENTS, tmp_path, settings=settings) as gateway, visiting(gateway) as visitor:
        assert (await visitor.http.get("/ui/")).status_code == 404


# --- who gets in


@pytest.mark.parametrize("path", PAGES)
async def test_who_has_shown_no_key_sees_the_login(visitor: Visitor, path: str) -> None:
    assert await visitor.follow(path) == f"/ui/login?to={path}"


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", "the API key is not valid"),
        ("a2agw_x", "the API key is not valid"),
        ("\N{SNOWMAN}", "the API key is not valid"),
    ],
)
async def test_what_is_no_key_opens_nothing(visitor: Visitor, key: str, words: str) -> None:
    answer = await visitor.log_in(key)
    assert (answer.status_code, words in visitor.text(answer.text)) == (401, True)
    assert key == "" or key not in answer.text
    await visitor.follow("/ui/")


async def test_a_key_that_is_no_admins_opens_nothing(keyed: Local, visitor: Visitor) -> None:
    answer = await visitor.log_in(await make_key(keyed, admin=False))
    assert (answer.status_code, "need an admin key" in answer.text) == (401, True)
    await visitor.follow("/ui/")


async def test_guessing_is_slowed_down(visitor: Visitor) -> None:
    await visitor.open("/ui/login")
    statuses = [(await visitor.send("/ui/login", key="x")).status_code for _ in range(22)]
    assert statuses[0] == 401
    assert statuses[-1] == 429


@pytest.mark.parametrize(
    ("to", "leads"),
    [
        ("/ui/contexts?agent=echo&text=a%20b", "/ui/contexts?agent=echo&text=a%20b"),
        ("https://evil.example/", "/ui/"),
        ("//evil.example/ui/", "/ui/"),
        ("/ui/\\evil", "/ui/"),
        ("/ui/x\r\nset-cookie: a=b", "/ui/"),
        ("/ui/login", "/ui/"),
        ("/admin/api/v1/push", "/ui/"),
    ],
)
async def test_an_admin_key_opens_the_page_that_was_asked_for(
    keyed: Local, visitor: Visitor, to: str, leads: str
) -> None:
    await visitor.open("/ui/login")
    answer = await visitor.send("/ui/login", key=await make_key(keyed), to=to)
    assert (answer.status_code, answer.headers["location"]) == (303, leads)
    assert "Nothing failed in the last hour" in await visitor.open("/ui/")


async def test_a_revoked_key_ends_its_sessions(tmp_path: Path) -> None:
    at = [0.0]
    clock = Clock(monotonic=lambda: at[0])
    async with (
        local_gateway(AGENTS, tmp_path, settings=KEYS, clock=clock) as gateway,
        visiting(gateway) as visitor,
    ):
        await visitor.log_in(await make_key(gateway))
        await visitor.open("/ui/keys")
        await gateway.gateway.runner.runtime.ledger.commit(RevokeKey("ops", gateway.gateway.runner.runtime.clock.now()))
        at[0] += 2
        await visitor.follow("/ui/keys")
        assert (await visitor.send("/ui/keys/new", name="x")).headers["location"] == "/ui/login?to=/ui/keys/new"


async def test_who_logs_out_is_out(keyed: Local, visitor: Visitor) -> None:
    await visitor.log_in(await make_key(keyed))
    await visitor.open("/ui/")
    assert (await visitor.send("/ui/logout")).headers["location"] == "/ui/login"
    await visitor.follow("/ui/")


async def test_a_copy_of_the_cookie_opens_nothing_after_the_logout(keyed: Local, visitor: Visitor) -> None:
    key = await make_key(keyed)
    await visitor.log_in(key)
    await visitor.open("/ui/keys/new")
    async with visiting(keyed) as thief:
        thief.http.cookies.update(visitor.http.cookies)
        await thief.open("/ui/keys/new")
        await visitor.send("/ui/logout")
        await thief.follow("/ui/keys")
        assert (await thief.send("/ui/keys/new", name="x", admin="1")).headers["location"].startswith("/ui/login")
    await visitor.log_in(key)
    await visitor.open("/ui/keys")


async def test_a_session_that_was_ended_is_over_after_a_restart_and_at_another_gateway_on_the_database(
    tmp_path: Path,
) -> None:
    async with local_gateway(AGENTS, tmp_path, settings=KEYS) as here, visiting(here) as visitor:
        await visitor.log_in(await make_key(here))
        await visitor.open("/ui/keys")
        cookie = "; ".join(f"{name}={value}" for name, value in visitor.http.cookies.items())
        async with local_gateway(AGENTS, tmp_path, settings=KEYS) as there, visiting(there) as other:
            await other.open("/ui/keys", cookie=cookie)
        await visitor.send("/ui/logout")
    async with local_gateway(AGENTS, tmp_path, settings=KEYS) as again, visiting(again) as other:
        answer = await other.http.get("/ui/keys", headers={"cookie": cookie})
        assert answer.headers["location"] == "/ui/login?to=/ui/keys"


async def test_without_authentication_there_is_no_login(open_visitor: Visitor) -> None:
    assert await open_visitor.follow("/ui") == "/ui/"
    assert await open_visitor.follow("/ui/login") == "/ui/"
    assert "Log out" not in await open_visitor.open("/ui/")


async def test_a_link_on_a_page_elsewhere_is_followed_with_the_cookie(visitor: Visitor) -> None:
    answer = await visitor.http.get("/ui/", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"})
    assert (answer.status_code, answer.headers["refresh"]) == (200, "0")
    assert "set-cookie" not in answer.headers


async def test_another_tenants_admin_sees_nothing_of_it(keyed: Local, visitor: Visitor) -> None:
    await visitor.log_in(await make_key(keyed, "theirs", tenant="other"))
    page = await visitor.open("/ui/keys")
    assert "theirs" in page
    await make_key(keyed, "ours")
    assert "ours" not in await visitor.open("/ui/keys")


# --- forms


async def test_a_form_of_another_site_changes_nothing(open_visitor: Visitor) -> None:
    await open_visitor.open("/ui/keys/new")
    for headers in ({}, {"origin": "http://localhost:1"}, {"origin": open_visitor.url, "sec-fetch-site": "cross-site"}):
        answer = await open_visitor.http.post(
            "/ui/keys/new", data={"token": open_visitor.token, "name": "x"}, headers=headers
        )
        assert answer.status_code == 403
    assert "There are no keys" in await open_visitor.open("/ui/keys")


@pytest.mark.parametrize("token", ["", "0" * 64, "x"])
async def test_a_form_without_the_token_of_its_session_changes_nothing(open_visitor: Visitor, token: str) -> None:
    await open_visitor.open("/ui/keys/new")
    answer = await open_visitor.send("/ui/keys/new", token=token, name="x")
    assert (answer.status_code, "load the page again" in answer.text) == (403, True)


async def test_a_form_of_a_session_before_is_too_old(open_visitor: Visitor) -> None:
    await open_visitor.open("/ui/keys/new")
    before = open_visitor.token
    open_visitor.http.cookies.clear()
    await open_visitor.open("/ui/keys/new")
    assert (await open_visitor.send("/ui/keys/new", token=before, name="x")).status_code == 403


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/json", b"{}", 415),
        ("application/x-www-form-urlencoded", b"\xff", 400),
        ("application/x-www-form-urlencoded", b"a=%ff", 400),
        ("application/x-www-form-urlencoded", b"a&" * 200, 400),
        ("application/x-www-form-urlencoded", b"a" * (9 << 20), 413),
    ],
    ids=range(5),
)
async def test_what_is_no_form_is_refused(open_visitor: Visitor, kind: str, body: bytes, status: int) -> None:
    await open_visitor.open("/ui/keys/new")
    headers = {"origin": open_visitor.url, "content-type": kind}
    answer = await open_visitor.http.post("/ui/keys/new", content=body, headers=headers)
    assert answer.status_code == status


@pytest.mark.parametrize("path", ["/ui/", "/ui/contexts", "/ui/keys", "/ui/go"])
async def test_a_page_without_a_form_takes_none(open_visitor: Visitor, path: str) -> None:
    await open_visitor.open("/ui/keys/new")
    assert (await open_visitor.send(path)).status_code == 405


# --- what every answer says


@pytest.mark.parametrize("path", ["/ui/", "/ui/nowhere", "/ui/contexts?standing=x", "/ui/playground"])
async def test_every_page_says_what_may_run_and_that_it_is_not_kept(open_visitor: Visitor, path: str) -> None:
    answer = await open_visitor.http.get(path)
    assert answer.headers["content-security-policy"] == POLICY.decode()
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "style=" not in answer.text
    assert "<script>" not in answer.text


async def test_a_cookie_is_given_once(open_visitor: Visitor) -> None:
    first, second = [await open_visitor.http.get("/ui/") for _ in range(2)]
    assert "HttpOnly; SameSite=Strict" in first.headers["set-cookie"]
    assert "set-cookie" not in second.headers


async def test_static_files_are_kept_for_good_under_their_digest(open_visitor: Visitor) -> None:
    await open_visitor.open("/ui/")
    [style] = [part.split('"')[0] for part in open_visitor.html.split('href="') if part.split('"')[0].endswith(".css")]
    answer = await open_visitor.http.get(style)
    assert (answer.status_code, "immutable" in answer.headers["cache-control"]) == (200, True)
    assert (await open_visitor.http.get(style.replace("/ui/static/", "/ui/static/0"))).status_code == 404


@pytest.mark.parametrize("path", ["/ui/nowhere", "/ui/contexts/x", "/ui/tasks/x", "/ui/tasks//events", "/ui/agents/x"])
async def test_what_is_not_there_is_said_on_a_page(open_visitor: Visitor, path: str) -> None:
    assert "To the overview" in await open_visitor.open(path, 404)


@pytest.mark.parametrize(
    "path",
    [
        "/ui/contexts?standing=none",
        "/ui/contexts?since=yesterday",
        "/ui/contexts?before=%00",
        "/ui/contexts?before=bm9uZQ",
        "/ui/deliveries?show=all",
        "/ui/deliveries?before=x",
        "/ui/agents/echo?before=W10",
    ],
)
async def test_a_filter_that_is_none_is_said_on_a_page(open_visitor: Visitor, path: str) -> None:
    assert "Invalid parameters" in await open_visitor.open(path, 400)


async def test_a_fault_of_the_gateway_shows_none_of_its_text(
    open_visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_visitor.open("/ui/")

    async def broken(_: Visit) -> Outcome:
        raise RuntimeError("a secret of the code")

    monkeypatch.setitem(addresses._PAGES, ("ui", "keys"), addresses.Address(broken))
    page = await open_visitor.open("/ui/keys", 500)
    assert "correlation id" in page
    assert "secret" not in page
