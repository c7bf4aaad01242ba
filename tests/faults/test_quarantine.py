"""A task that kills every process that tries to end it: after a few tries the gateway starts, serves all other tasks, and
sets this one aside until it is cancelled or its context deleted. Source: docs/state-model.md, section 14, K12."""

import asyncio
import json
from pathlib import Path
from textwrap import indent

import pytest

from tests.a2a_client import A2A, COMPLETED, Refused, a2a_http, user_message, why
from tests.faults.paused_agents import paused_agents
from tests.faults.unfinished import expire_leases
from tests.invariants import violations
from tests.support.fork_server import Forked, fork_server
from tests.support.rows import query
from tests.support.stores import ledger_url

pytestmark = [pytest.mark.xdist_group("kill"), pytest.mark.fault("K12")]

_BOUND_SECONDS = 120
_TRIES = 4


def _told(child: Forked, event: str) -> list[str]:
    """The tasks of which this was logged."""
    lines = [json.loads(line) for line in child.log.read_text().splitlines() if line.startswith("{")]
    return [line["task"] for line in lines if line["event"] == event]


def _tries(database: Path) -> list[int]:
    return [tries for (tries,) in query(database, "SELECT tries FROM turn WHERE ended_at IS NULL")]


@pytest.mark.parametrize("way_out", ["cancelled", "deleted"])
async def test_a_task_that_kills_every_process_that_ends_it_is_put_aside_and_the_gateway_starts(
    tmp_path: Path, way_out: str
) -> None:
    async with asyncio.timeout(_BOUND_SECONDS), paused_agents(tmp_path) as held, fork_server() as parent:
        file, database = tmp_path / "gateway.yaml", tmp_path / "gateway.db"
        file.write_text(
            f"version: 1\nserver: {{port: 0}}\nstorage: {{url: '{ledger_url(database)}', lease_timeout: 1s}}\n"
            f"agents:\n{indent(held.agents, '  ')}\n"
        )
        child = await parent.serving(file)
        async with a2a_http(child.url.result()) as http:
            caller = A2A(http, "function")
            async with caller.stream("talking function", "c") as stream:
                [first] = await stream.read(1)
                bad = first.event["task"]["id"]
                await stream.read(3)
                await child.kill()
        for number in range(1, _TRIES + 1):
            expire_leases(database)
            child = await parent.fork(file, "*finish*:1")
            assert (await child.dead(), _tries(database)) == (-9, [number])
        expire_leases(database)
        child = await parent.serving(file, "*fence*:1")
        async with a2a_http(child.url.result()) as http:
            caller = A2A(http, "function")
            assert why(await caller.send("first other", "d")) == COMPLETED
            assert (await caller.get(bad))["metadata"] == {"quarantined": True}
            with pytest.raises(Refused, match=bad):
                await caller.call("SendMessage", message=user_message("more", "c"))
            assert _told(child, "turn.put-aside") == [bad]
            await child.kill()
        expire_leases(database)
        child = await parent.serving(file)
        async with a2a_http(child.url.result()) as http:
            caller = A2A(http, "function")
            if way_out == "cancelled":
                canceled = await caller.call("CancelTask", id=bad)
                assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
                assert why(await caller.send("first again", "c")) == COMPLETED
            else:
                assert (await http.delete("/admin/api/v1/contexts/c")).status_code == 204
                with pytest.raises(Refused):
                    await caller.get(bad)
        await child.kill()
    assert _tries(database) == []
    assert violations(database) == []
