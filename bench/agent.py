"""The agent of the targets `gateway-python` and `gateway-process`: it answers as the mock does, by the same directive."""
import asyncio
import re
import time

DIRECTIVE = re.compile(r"\b(n|gap|bytes)=(\d+)")


async def reply(turn):
    plan = {"n": 20, "gap": 0, "bytes": 32} | {name: int(value) for name, value in DIRECTIVE.findall(turn.text)}
    for number in range(plan["n"]):
        if plan["gap"]:
            await asyncio.sleep(plan["gap"] / 1e6)
        yield f"#T{time.monotonic_ns():016x}.{number:05x}#".ljust(plan["bytes"], "x")
