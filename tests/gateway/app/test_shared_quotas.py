"""Two gateways on one database: the limits of a principal hold over both."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.a2a_client import A2A, Refused, a2a_http
from tests.running import local_gateway
from tests.support.rows import query

_AGENTS = "  slow: {type: python, ref: './slow.py:reply'}"
_REPLY = """
import asyncio

async def reply(turn):
    yield 'a'
    await asyncio.Event().wait()
"""
_LIMITS = "limits: {streams_per_principal: 3}"


async def test_a_limit_of_three_streams_is_three_over_both_after_an_interval(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(_REPLY)
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(local_gateway(_AGENTS, tmp_path, settings=_LIMITS))
        two = await stack.enter_async_context(local_gateway(_AGENTS, tmp_path, settings=_LIMITS))
        here, there = [A2A(await stack.enter_async_context(a2a_http(local.url)), "slow") for local in (one, two)]
        shared = [local.gateway.shared_quotas for local in (one, two)]
        for client in (here, here, there):
            stream = await stack.enter_async_context(client.stream("go"))
            await stream.read(1)
        for each in (*shared, *shared):
            await each.look()
        for client in (here, there):
            with pytest.raises(Refused, match="3 open streams"):
                async with client.stream("go"):
                    pass
    assert query(one.database, "SELECT process FROM quota_use") == []
