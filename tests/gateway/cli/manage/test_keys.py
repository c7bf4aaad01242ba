"""`keys`: created, listed and revoked beside a running gateway, and used by other commands."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.ledger.api_keys import has_form
from storage.schema.open import prepare
from tests.a2a_client import a2a_http
from tests.gateway.cli.conftest import Call, CommandLine
from tests.running import Local, local_gateway
from tests.support.core import BOUND

AGENTS = 'mine: {type: python, ref: "gateway.cli.demo.agent:reply"}'
ASKED = "auth: {mode: any_of, api_keys: {enabled: true}}"


def configuration(folder: Path, settings: str = ASKED) -> str:
    file = folder / "gateway.yaml"
    file.write_text(f"version: 1\nstorage: {{url: 'sqlite:///gateway.db'}}\n{settings}\nagents:\n  {AGENTS}\n")
    return str(file)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Local]:
    async with local_gateway(AGENTS, tmp_path, settings=ASKED) as gateway:
        yield gateway


def test_a_key_is_printed_once_and_listed_by_its_beginning(call: Call, tmp_path: Path) -> None:
    file = configuration(tmp_path)
    made = call("keys", "create", "laptop", "--principal", "ada", "--tenant", "acme", "--expires", "90d", "-c", file)
    key = made.out.strip()
    assert made.code == 0
    assert has_form(key)
    assert made.err.startswith("key laptop: principal ada of tenant acme, until ")
    assert made.err.endswith("; it is shown this once\n")
    listed = call("keys", "list", "-c", file)
    name, begins, principal, tenant, admin, _, _, state = listed.out.rstrip("\n").split("\t")
    assert (name, begins, principal, tenant, admin, state) == ("laptop", key[:12], "ada", "acme", "-", "in force")
    assert key not in listed.out
    assert key.encode() not in (tmp_path / "gateway.db").read_bytes()


def test_keys_are_json_for_programs(call: Call, tmp_path: Path) -> None:
    file = configuration(tmp_path)
    made = json.loads(call("keys", "create", "ops", "--admin", "-o", "json", "-c", file).out)
    key = made.pop("key")
    assert has_form(key)
    assert made["prefix"] == key[:12]
    assert (made["name"], made["principal"], made["admin"], made["expiresAt"]) == ("ops", "ops", True, None)
    assert json.loads(call("keys", "list", "-o", "json", "-c", file).out) == {"keys": [made]}


def test_a_name_belongs_to_one_key_in_force(call: Call, tmp_path: Path) -> None:
    file = configuration(tmp_path)
    call("keys", "create", "bot", "-c", file)
    again = call("keys", "create", "bot", "-c", file)
    assert (again.code, again.out) == (2, "")
    assert again.err == (
        "there is a key 'bot' already; revoke it first, or choose another name: "
        f"a2a-gateway keys revoke bot -c {file}\n"
    )
    assert call("keys", "revoke", "bot", "-c", file).out == "key bot is revoked\n"
    twice = call("keys", "revoke", "bot", "-c", file)
    assert (twice.code, twice.err.splitlines()[0]) == (1, "no key 'bot' is in force")
    assert call("keys", "create", "bot", "-c", file).code == 0
    states = [line.rsplit("\t", 1)[1] for line in call("keys", "list", "-c", file).out.splitlines()]
    assert states == ["revoked", "in force"]


def test_a_key_without_authentication_is_reported(call: Call, tmp_path: Path) -> None:
    made = call("keys", "create", "bot", "-c", configuration(tmp_path, ""))
    assert made.err.splitlines()[-1] == "auth.mode is none: nobody is asked for a key"
    assert call("keys", "list", "-c", configuration(tmp_path, "")).code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", ""), "the name must be 1 to 256 characters without control characters"),
        (("create", "a\tb"), "the name must be 1 to 256 characters without control characters"),
        (("create", "a", "--principal", ""), "--principal must be 1 to 256 characters without control characters"),
        (("create", "a", "--tenant", "x" * 257), "--tenant must be 1 to 256 characters without control characters"),
        (("create", "a", "--expires", "soon"), "--expires must be a duration such as 500ms, 30s, 15m, 1h or 7d"),
        (("create", "a", "--expires", "0s"), "--expires must be longer than nothing"),
    ],
)
def test_an_invalid_key_is_refused(call: Call, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    file = configuration(tmp_path)
    refused = call("keys", *arguments, "-c", file)
    assert (refused.code, refused.out, refused.err) == (2, "", f"{message}\n")
    assert not (tmp_path / "gateway.db").exists()


def test_without_keys_a_message_says_so(call: Call, tmp_path: Path) -> None:
    file = configuration(tmp_path)
    prepare(tmp_path / "gateway.db", 5000, auto_migrate=True)
    none = call("keys", "list", "-c", file)
    assert (none.code, none.out, none.err) == (0, "", "there are no keys\n")
    no_file = call("keys", "list", "-c", str(tmp_path / "other.yaml"))
    assert no_file.code == 78


@pytest.mark.parametrize("command", [("list",), ("revoke", "laptop")])
def test_without_a_database_only_a_new_key_makes_one(call: Call, tmp_path: Path, command: tuple[str, ...]) -> None:
    file = configuration(tmp_path, f"{ASKED}\naudit: {{path: audit.jsonl}}")
    missing = f"there is no database {str(tmp_path / 'gateway.db')!r}"
    refused = call("keys", *command, "-c", file)
    assert (refused.code, refused.out) == (69, "")
    assert refused.err == f"{missing}: it is made by the first start of the gateway, or by keys create\n"
    assert not (tmp_path / "gateway.db").exists()
    assert call("backup", str(tmp_path / "backup.db"), "-c", file).err == f"no backup was made: {missing}\n"
    if command == ("revoke", "laptop"):
        assert json.loads((tmp_path / "audit.jsonl").read_text())["outcome"] == "not_found"
    assert call("keys", "create", "laptop", "-c", file).code == 0
    assert call("keys", *command, "-c", file).code == 0


async def test_a_running_gateway_accepts_a_new_key_at_once_and_refuses_a_revoked_one_soon(
    gateway: Local, command_line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = configuration(tmp_path)
    without = await command_line("send", "Hello", "-u", gateway.url)
    assert (without.code, without.out) == (77, "")
    assert "this needs an API key" in without.err
    assert "--key, or A2A_GATEWAY_KEY" in without.err
    key = (await command_line("keys", "create", "bot", "-c", file)).out.strip()
    sent = await command_line("send", "Hello", "-u", gateway.url, "--key", key)
    assert sent.code == 0
    monkeypatch.setenv("A2A_GATEWAY_KEY", key)
    listed = await command_line("tasks", "list", "-u", gateway.url)
    assert (listed.code, len(listed.out.splitlines())) == (0, 1)
    assert (await command_line("card", "-u", gateway.url)).code == 0
    refused = await command_line("contexts", "export", "any", "-u", gateway.url)
    assert (refused.code, "the admin API needs an admin key" in refused.err) == (77, True)
    for words in (("push", "list"), ("push", "replay", "any")):
        refused = await command_line(*words, "-u", gateway.url)
        assert (refused.code, "the admin API needs an admin key" in refused.err) == (77, True)
    await command_line("keys", "revoke", "bot", "-c", file)
    async with a2a_http(gateway.url) as http:
        headers = {"X-API-Key": key}

        async def is_refused() -> bool:
            return (await http.get("/a2a/mine/tasks", headers=headers)).status_code == 401

        async with asyncio.timeout(BOUND):
            while not await is_refused():
                pass
    again = await command_line("tasks", "list", "-u", gateway.url)
    assert again.code == 77
