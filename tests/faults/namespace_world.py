"""A small internet, run by `unshare -rnm`: this machine has every address in it, public and private.

Prints as JSON what each configuration was answered, and which listeners got a connection.
"""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.a2a_client import A2A, Json, Refused, a2a_http, user_message
from tests.running import local_gateway
from tests.support.polling import until

PUBLIC = "93.184.216.34"
PRIVATE = ("10.0.0.1", "169.254.169.254", "100.100.100.200", "192.168.7.7", "fd00::1", "127.0.0.1")
PORT = 8443
HOSTS = f"""
{PUBLIC} public.example rebinding.example redirecting.example
10.0.0.1 inside.example
169.254.169.254 metadata.example
fd00::1 inside6.example
{PUBLIC} mixed.example
10.0.0.1 mixed.example
"""
URLS = (
    f"http://{PUBLIC}:{PORT}/literal",
    f"http://public.example:{PORT}/name",
    f"http://redirecting.example:{PORT}/redirect",
    f"http://rebinding.example:{PORT}/rebind",
    *(f"http://{f'[{address}]' if ':' in address else address}:{PORT}/" for address in PRIVATE),
    f"http://[::ffff:10.0.0.1]:{PORT}/",
    f"http://inside.example:{PORT}/",
    f"http://metadata.example:{PORT}/",
    f"http://inside6.example:{PORT}/",
    f"http://mixed.example:{PORT}/",
)


def _prepare(folder: Path) -> None:
    for command in (
        ["ip", "link", "set", "lo", "up"],
        # Nobody else could have the address: to look for them would keep it unusable for a moment.
        *(["ip", "addr", "add", address, "dev", "lo", "nodad"] for address in (PUBLIC, *PRIVATE[:-1])),
    ):
        subprocess.run(command, check=True)
    _hosts(folder, HOSTS)
    subprocess.run(["mount", "--bind", str(folder / "hosts"), "/etc/hosts"], check=True)


def _hosts(folder: Path, text: str) -> None:
    (folder / "hosts").write_text(text)


class World:
    def __init__(self) -> None:
        self.connected: Counter[str] = Counter()
        self.paths: Counter[str] = Counter()

    async def listen(self, stack: AsyncExitStack, address: str) -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connected[address] += 1
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split()[1]
            self.paths[path] += 1
            answer = "200 OK"
            if path == "/redirect":
                answer = f"307 Temporary Redirect\r\nLocation: http://169.254.169.254:{PORT}/"
            writer.write(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
            writer.close()

        await stack.enter_async_context(await asyncio.start_server(talk, address, PORT))


async def live(folder: Path) -> dict[str, Any]:
    world = World()
    told: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        for address in (PUBLIC, *PRIVATE):
            await world.listen(stack, address)
        agents = "held: {type: python, ref: 'tests.interop.echo_agent:reply'}"
        settings = "push: {allow_http: true, max_attempts: 1, timeout: 5s}"
        gateway = await stack.enter_async_context(local_gateway(agents, folder, settings=settings))
        agent = A2A(await stack.enter_async_context(a2a_http(gateway.url)), "held")
        for url in URLS:
            try:
                answer = await agent.call(
                    "SendMessage",
                    message=user_message(f"hold {url}"),
                    configuration={"returnImmediately": True, "taskPushNotificationConfig": {"id": "c", "url": url}},
                )
                told[url] = answer["task"]["id"]
            except Refused as refused:
                told[url] = refused.error["message"]
        _hosts(folder, HOSTS.replace(" rebinding.example", "") + "169.254.169.254 rebinding.example\n")
        await _release(agent, told)
        found: list[Json] = []

        async def all_tried() -> bool:
            found[:] = (await agent.http.get("/admin/api/v1/push")).json()["configs"]
            return all(config["state"] != "active" for config in found)

        await until(all_tried)
    errors = {config["url"]: config["lastError"] for config in found}
    return {"told": told, "connected": world.connected, "paths": world.paths, "errors": errors}


async def _release(agent: A2A, told: dict[str, str]) -> None:
    for task in told.values():
        if " " not in task:
            await agent.call("CancelTask", id=task)


if __name__ == "__main__":
    _prepare(Path(sys.argv[1]))
    sys.stdout.write(json.dumps(asyncio.run(live(Path(sys.argv[1])))) + "\n")
