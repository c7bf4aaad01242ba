"""Metrics as Prometheus itself reads them: its checker of pages and rules, and a server that scrapes a gateway."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.a2a_client import A2A, a2a_http
from tests.interop.peer_processes import absent
from tests.running import StartLocal, start_local
from tests.support.polling import until
from tests.support.ports import free_port

__all__ = ["start_local"]

DEPLOY = Path(__file__).parents[2] / "deploy" / "prometheus"
AGENT = "echo: {type: python, ref: 'tests.interop.echo_agent:reply'}"
PAGE = "metrics: {path: /metrics}"


def program(name: str) -> str:
    found = shutil.which(name)
    return found or absent(f"{name} is not installed: run .ci/peers.sh as root on Debian")


def alerts() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def queries() -> Iterator[str]:
    for panel in json.loads((DEPLOY / "dashboard.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    yield from (rule["expr"] for rule in alerts())


@asynccontextmanager
async def prometheus(folder: Path, target: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Scrapes the target each second, with the rules of deploy/."""
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [target]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(DEPLOY / "alerts.yml", folder)
    port = free_port()
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program("prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            stdout=log,
            stderr=log,
        )
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:

            async def ready() -> bool:
                assert process.returncode is None, (folder / "prometheus.log").read_text()
                with suppress(httpx2.TransportError):
                    return (await http.get("/-/ready")).status_code == 200
                return False

            await until(ready)
            yield http
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def answer(http: httpx2.AsyncClient, query: str) -> list[dict[str, Any]]:
    reply = (await http.get("/api/v1/query", params={"query": query})).json()
    assert reply["status"] == "success", (query, reply)
    found: list[dict[str, Any]] = reply["data"]["result"]
    return found


async def test_a_server_scrapes_a_gateway_and_answers_every_query_of_the_dashboard(
    start_local: StartLocal, tmp_path: Path
) -> None:
    gateway = await start_local(AGENT, settings=PAGE)
    async with prometheus(tmp_path, gateway.url.removeprefix("http://")) as http, a2a_http(gateway.url) as caller:
        for _ in range(3):
            await A2A(caller, "echo").send("hello")

        async def scraped() -> bool:
            found = await answer(http, 'a2a_gateway_turns_total{agent="echo",outcome="completed"}')
            return [sample["value"][1] for sample in found] == ["3"]

        await until(scraped)
        assert [sample["value"][1] for sample in await answer(http, "up")] == ["1"]
        for query in queries():
            await answer(http, query)
        rules = (await http.get("/api/v1/rules")).json()["data"]["groups"][0]["rules"]
    assert {rule["name"]: rule["health"] for rule in rules if rule["health"] == "err"} == {}


async def test_the_checker_of_prometheus_finds_nothing_wrong_with_the_page(start_local: StartLocal) -> None:
    checker = program("promtool")
    gateway = await start_local(AGENT, settings=PAGE)
    async with a2a_http(gateway.url) as http:
        await A2A(http, "echo").send("hello")
        text = (await http.get("/metrics")).text
    done = await asyncio.to_thread(
        subprocess.run, [checker, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("command", "file"), [("rules", "alerts.yml"), ("config", "prometheus.yml")])
def test_the_checker_of_prometheus_accepts_the_files(command: str, file: str) -> None:
    checked = [program("promtool"), "check", command, str(DEPLOY / file)]
    done = subprocess.run(checked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


async def test_every_metric_of_the_files_is_one_of_the_gateways(start_local: StartLocal) -> None:
    documented = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    named = {name for query in queries() for name in re.findall(r"a2a_gateway_[a-z_]+", query)}
    for name in named:
        family = re.sub(r"^a2a_gateway_|_bucket$", "", name)
        assert f"`{family}`" in documented, name
