"""The public wire for a session."""

import json
from collections.abc import AsyncIterator

import pytest

from tests.gateway.ui.visitor import Visitor, make_key, visiting
from tests.running import Local, StartLocal

AGENTS = 'echo: {type: python, ref: "gateway.cli.demo.agent:reply"}'
KEYS = "auth: {mode: any_of, api_keys: {enabled: true}}"
MESSAGE = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
V1 = {"a2a-version": "1.0", "content-type": "application/json"}


@pytest.fixture
async def gateway(start_local: StartLocal) -> Local:
    return await start_local(AGENTS, settings=KEYS)


@pytest.fixture
async def visitor(gateway: Local) -> AsyncIterator[Visitor]:
    async with visiting(gateway) as visitor:
        await visitor.log_in(await make_key(gateway))
        await visitor.open("/ui/playground")
        yield visitor


async def test_a_cookie_is_no_credential_of_the_public_wire(visitor: Visitor) -> None:
    for path in ("/a2a/echo/message:send", "/admin/api/v1/contexts:import"):
        answer = await visitor.http.post(path, json=MESSAGE, headers={**V1, "x-ui-token": visitor.token})
        assert answer.status_code == 401


@pytest.mark.parametrize("token", [None, "", "0" * 64])
async def test_a_session_without_its_token_is_nobody(visitor: Visitor, token: str | None) -> None:
    headers = V1 if token is None else {**V1, "x-ui-token": token}
    answer = await visitor.http.post("/ui/wire/echo/message:send", json=MESSAGE, headers=headers)
    assert answer.status_code == 401


async def test_a_key_is_no_credential_of_the_sessions_wire(gateway: Local, visitor: Visitor) -> None:
    visitor.http.cookies.clear()
    key = {"authorization": f"Bearer {await make_key(gateway, 'other')}", "x-ui-token": visitor.token}
    answer = await visitor.http.post("/ui/wire/echo/message:send", json=MESSAGE, headers={**V1, **key})
    assert answer.status_code == 401


@pytest.mark.parametrize("path", ["/ui/wire/", "/ui/wire/echo", "/ui/wire/echo/nothing", "/ui/wire/nobody/tasks/x"])
async def test_what_is_no_operation_is_not_found(visitor: Visitor, path: str) -> None:
    assert (await visitor.http.get(path, headers={**V1, "x-ui-token": visitor.token})).status_code == 404


async def test_it_says_what_the_public_wire_says(gateway: Local, visitor: Visitor) -> None:
    key = await make_key(gateway, "second")
    ours = {**V1, "x-ui-token": visitor.token}
    theirs = {**V1, "authorization": f"Bearer {key}"}
    for path, body in (
        ("message:send", {"message": {}}),
        ("message:send", {"message": {**MESSAGE["message"], "taskId": "t"}}),
        ("message:stream", {"message": {**MESSAGE["message"], "parts": []}}),
        ("tasks/none:cancel", {}),
        ("tasks/none:subscribe", {}),
    ):
        session = await visitor.http.post(f"/ui/wire/echo/{path}", json=body, headers=ours)
        public = await visitor.http.post(f"/a2a/echo/{path}", json=body, headers=theirs)
        assert (session.status_code, session.content) == (public.status_code, public.content)


async def test_a_stream_and_its_task_are_the_sessions_principals(gateway: Local, visitor: Visitor) -> None:
    headers = {**V1, "x-ui-token": visitor.token}
    answer = await visitor.http.post("/ui/wire/echo/message:stream", json=MESSAGE, headers=headers)
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    task = events[0]["task"]["id"]
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    got = await visitor.http.get(f"/ui/wire/echo/tasks/{task}", headers=headers)
    assert got.json()["id"] == task
    assert "ops" in await visitor.open(f"/ui/tasks/{task}")
