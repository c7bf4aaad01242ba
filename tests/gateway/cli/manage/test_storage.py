"""`storage copy`: a ledger into another one, from a configuration or a URL to either."""

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from storage.compiled import TABLES
from storage.schema.open import prepare
from tests.a2a_client import A2A, a2a_http, text_of
from tests.gateway.cli.conftest import Call, CommandLine
from tests.gateway.cli.pseudo_terminal import terminal
from tests.ledgers.fixture import sql_file
from tests.running import local_gateway
from tests.support import installed

AGENTS = 'mine: {type: python, ref: "gateway.cli.demo.agent:reply"}'


@pytest.fixture
def file(tmp_path: Path) -> str:
    file = tmp_path / "gateway.yaml"
    file.write_text(f"version: 1\nstorage: {{url: 'sqlite:///gateway.db'}}\nagents:\n  {AGENTS}\n")
    return str(file)


@pytest.fixture
def source(tmp_path: Path) -> str:
    """The URL of the ledger of a release."""
    path = tmp_path / "release.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(sql_file("0.1.0").read_text())
    prepare(path, 5000, auto_migrate=True)
    return f"sqlite:///{path}"


def configuration(folder: Path, name: str, storage: str) -> str:
    file = folder / f"{name}.yaml"
    file.write_text(f"version: 1\nstorage: {{{storage}}}\nagents:\n  {AGENTS}\n")
    return str(file)


def test_a_kind_that_is_not_installed_is_named_without_its_credentials(call: Call, source: str) -> None:
    ended = call("storage", "copy", source, "mysql://ada:secret@host/db")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("mysql://***@host/db: there is no such kind of storage; installed: ")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:/ada:secret@host/db",
        "postgresql:ada:secret@host/db",
        "postgres:///ada:secret@host/db",
        "postgresql://ada:se/cret@host/db?connect_timeout=x",
        "postgress:/ada:secret@host/db",
        "mysql:ada:secret@host/db",
    ],
)
@pytest.mark.parametrize("turned", [False, True], ids=["to", "from"])
def test_a_mistyped_url_is_named_without_its_credentials(call: Call, source: str, url: str, turned: bool) -> None:
    ended = call("storage", "copy", *((url, source) if turned else (source, url)))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"{url.partition(':')[0]}:")
    assert "***@host/db" in ended.err
    assert "cret" not in ended.err


def test_a_url_that_names_no_database_is_refused_in_the_words_of_the_configuration(call: Call, source: str) -> None:
    ended = call("storage", "copy", source, "sqlite:///:memory:")
    assert (ended.code, ended.err) == (
        2,
        "sqlite:///:memory:: url must name a file and nothing else: sqlite:///./data/gateway.db\n",
    )


def test_a_configuration_that_is_not_there_is_named(call: Call, source: str) -> None:
    ended = call("storage", "copy", source, "none.yaml")
    assert (ended.code, ended.out) == (78, "")
    assert ended.err.startswith("none.yaml: there is no such file")


def test_the_path_of_a_database_is_told_from_a_configuration(call: Call, source: str, tmp_path: Path) -> None:
    ended = call("storage", "copy", source.removeprefix("sqlite:///"), f"sqlite:///{tmp_path}/new.db")
    assert (ended.code, ended.out) == (78, "")
    assert ended.err.endswith("A database is named by its URL, as sqlite:///./data/gateway.db\n")


def test_a_ledger_is_not_copied_to_itself(call: Call, file: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/gateway.db"
    ended = call("storage", "copy", file, url)
    assert (ended.code, ended.err) == (2, f"{url} is both the source and the target\n")


def test_a_source_that_is_not_there_is_named_and_nothing_is_made(call: Call, file: str, tmp_path: Path) -> None:
    ended = call("storage", "copy", f"sqlite:///{tmp_path}/none.db", file)
    assert (ended.code, ended.err) == (
        69,
        f"not copied: sqlite:///{tmp_path}/none.db cannot be used: there is no such file\n",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["gateway.yaml"]


def test_a_target_with_rows_is_refused(call: Call, source: str, file: str) -> None:
    assert call("keys", "create", "first", "-c", file).code == 0
    ended = call("storage", "copy", source, file)
    assert (ended.code, ended.out) == (69, "")
    assert "gateway.db has rows of its own, in api_key: nothing is added to them" in ended.err


def test_configurations_with_different_keys_are_refused(call: Call, tmp_path: Path) -> None:
    key = "0123456789abcdef0123456789abcdef"
    one = configuration(tmp_path, "one", "url: 'sqlite:///one.db'")
    other = configuration(tmp_path, "other", f"url: 'sqlite:///other.db', encryption_key: {key}")
    ended = call("storage", "copy", one, other)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("storage.encryption_key of the two configurations differs")
    assert key not in ended.err


def test_a_ledger_of_a_third_party_that_offers_no_rows_cannot_be_copied(tmp_path: Path) -> None:
    installed.install(tmp_path, {"shelf": {}}, {}, ledgers={"shelf": "tests.support.shelf:factory"})
    configuration(tmp_path, "shelf", "url: 'shelf://ada:secret@library', folder: books")
    ended = installed.run(tmp_path, "storage", "copy", "shelf.yaml", "sqlite:///other.db")
    assert (ended.returncode, ended.stderr) == (
        2,
        "shelf://***@library: storage of the kind shelf cannot be copied\n",
    )
    ended = installed.run(tmp_path, "storage", "copy", "shelf://library", "sqlite:///other.db")
    assert (ended.returncode, ended.stderr) == (
        2,
        "shelf://library: folder Field required; name a configuration file, which has all settings of the storage\n",
    )


async def test_a_gateway_on_the_copy_goes_on_with_the_conversation(
    command_line: CommandLine, tmp_path: Path, file: str
) -> None:
    async with local_gateway(AGENTS, tmp_path) as gateway, a2a_http(gateway.url) as http:
        task = await A2A(http, "mine").send("remember")
    (tmp_path / "new").mkdir()
    made = await command_line("storage", "copy", file, f"sqlite:///{tmp_path}/new/gateway.db")
    assert (made.code, made.err) == (0, "")
    assert made.out.endswith(f"rows in {len(TABLES)} tables, all equal\n")
    async with local_gateway(AGENTS, tmp_path / "new") as gateway, a2a_http(gateway.url) as http:
        agent = A2A(http, "mine")
        assert text_of(await agent.get(task["id"])) == text_of(task)
        assert (await agent.send("and on", task["contextId"]))["status"]["state"] == "TASK_STATE_COMPLETED"


def test_of_two_schemas_of_one_database_each_is_named(
    call: Call, source: str, postgres_url: str, tmp_path: Path
) -> None:
    one, two = (
        configuration(tmp_path, schema, f"url: '{postgres_url}', database_schema: {schema}")
        for schema in ("one", "two")
    )
    assert call("storage", "copy", source, one).code == 0
    ended = call("storage", "copy", one, two)
    address = f"postgresql://***@{postgres_url.rpartition('@')[2]}"
    assert ended.out.startswith(f"{address} (schema one) is copied to {address} (schema two): ")
    again = call("storage", "copy", source, two)
    assert (again.code, again.err.startswith(f"not copied: {address} (schema two) has rows of its own")) == (69, True)


def test_as_json_it_tells_of_each_table(call: Call, source: str, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path}/new/gateway.db"
    ended = call("storage", "copy", source, target, "--json")
    told = json.loads(ended.out)
    assert (ended.code, ended.err, told["from"], told["to"], told["resumed"]) == (0, "", source, target, False)
    assert [table["name"] for table in told["tables"]] == [*TABLES]
    assert told["rows"] == sum(table["rows"] for table in told["tables"])
    again = call("storage", "copy", target, f"sqlite:///{tmp_path}/third.db", "-o", "jsonl")
    assert [json.loads(line) for line in again.out.splitlines()] == told["tables"]


def test_a_killed_copy_goes_on_with_the_same_command(call: Call, source: str, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path}/new.db"
    program = (
        "import os, signal, sys\n"
        "from gateway.ledger import copying\n"
        "copying._BATCH_ROWS = 7\n"
        "from storage.rows import SqliteRows\n"
        "write, left = SqliteRows.write, iter(range(20))\n"
        "def killed(*arguments):\n"
        "    write(*arguments)\n"
        "    next(left, None) is None and os.kill(os.getpid(), signal.SIGKILL)\n"
        "SqliteRows.write = killed\n"
        "from gateway.cli.main import run\n"
        "run(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", program, "storage", "copy", source, target]
    assert subprocess.run(command, timeout=60, check=False).returncode == -signal.SIGKILL
    ended = call("keys", "list", "-c", configuration(tmp_path, "new", f"url: '{target}'"))
    assert (ended.code, "a copy into it has begun and not ended" in ended.err) == (69, True)
    ended = call("storage", "copy", source, target, "--json")
    assert (ended.code, json.loads(ended.out)["resumed"]) == (0, True)
    direct = json.loads(call("storage", "copy", source, f"sqlite:///{tmp_path}/direct.db", "--json").out)
    assert json.loads(ended.out)["tables"] == direct["tables"]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (
            ("storage", "copy", "FILE", "sqlite:///x.db"),
            "the storage temporary keeps nothing, so there is nothing to copy",
        ),
        (("backup", "x.db", "-c", "FILE"), "the storage temporary keeps nothing, so there is nothing to back up"),
        (("restore", "x.db", "-c", "FILE"), "the storage temporary keeps nothing, so there is nothing to back up"),
        (
            ("keys", "create", "ada", "-c", "FILE"),
            "the storage temporary keeps nothing, and a gateway that runs has one",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_keeps_nothing_has_nothing_to_be_managed(
    command: tuple[str, ...], why: str, call: Call, tmp_path: Path
) -> None:
    file = configuration(tmp_path, "gateway", "url: temporary")
    ended = call(*(file if word == "FILE" else word for word in command))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(why)


def test_a_temporary_storage_has_no_other_keys_of_its_own(call: Call, tmp_path: Path) -> None:
    ended = call("check", "-c", configuration(tmp_path, "gateway", "url: temporary, readers: 3"))
    assert (ended.code, "storage.readers: unknown key" in ended.err) == (78, True)
    ended = call("check", "-c", configuration(tmp_path, "gateway", "url: 'temporary:x'"))
    assert (ended.code, "storage.url: must be" in ended.err) == (78, True)


def test_check_says_that_nothing_is_kept(call: Call, tmp_path: Path) -> None:
    file = configuration(tmp_path, "gateway", "url: temporary")
    ended = call("check", "-c", file)
    assert (ended.code, ended.out) == (0, f"{file}: ok; agents: mine; storage temporary: nothing is kept\n")


async def test_a_gateway_on_temporary_storage_says_that_nothing_is_kept(tmp_path: Path) -> None:
    file = configuration(tmp_path, "gateway", "url: temporary")
    async with terminal("serve", "-c", file, "--port", "0") as screen:
        await screen.until("The storage is temporary: nothing is kept when the gateway ends")


async def test_a_terminal_shows_how_far_it_is(source: str, tmp_path: Path) -> None:
    async with terminal("storage", "copy", source, f"sqlite:///{tmp_path}/new.db") as screen:
        with closing(sqlite3.connect(source.removeprefix("sqlite:///"))) as connection:
            [(events,)] = connection.execute("SELECT count(*) FROM event").fetchall()
        await screen.until(f"copying event: {events} rows")
        await screen.until("tables, all equal")
