"""`backup` and `restore`: the database of a configuration as one file, while its gateway runs and after it."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gateway.foundation.clock import Clock
from storage.connection import connect
from storage.rows import open_rows
from tests.a2a_client import A2A, a2a_http, text_of
from tests.gateway.cli.conftest import Call, CommandLine
from tests.running import local_gateway

AGENTS = 'mine: {type: python, ref: "gateway.cli.demo.agent:reply"}'


@pytest.fixture
def file(tmp_path: Path) -> str:
    file = tmp_path / "gateway.yaml"
    file.write_text(f"version: 1\nstorage: {{url: 'sqlite:///gateway.db'}}\nagents:\n  {AGENTS}\n")
    return str(file)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "backups" / "monday.db"


def with_database(call: Call, file: str) -> None:
    assert call("keys", "create", "first", "-c", file).code == 0


def names(call: Call, file: str) -> list[str]:
    return [line.split("\t")[0] for line in call("keys", "list", "-c", file).out.splitlines()]


async def test_a_backup_of_a_running_gateway_holds_what_was_said(
    command_line: CommandLine, tmp_path: Path, file: str, copy: Path
) -> None:
    async with local_gateway(AGENTS, tmp_path) as gateway, a2a_http(gateway.url) as http:
        agent = A2A(http, "mine")
        task = await agent.send("remember")
        made = await command_line("backup", str(copy), "-c", file)
        assert (made.code, made.err) == (0, "")
        later = await agent.send("after the backup")
    lose_database(tmp_path)
    assert (await command_line("restore", str(copy), "-c", file)).code == 0
    async with local_gateway(AGENTS, tmp_path) as gateway, a2a_http(gateway.url) as http:
        agent = A2A(http, "mine")
        assert text_of(await agent.get(task["id"])) == text_of(task)
        assert (await http.get(f"/a2a/mine/tasks/{later['id']}")).status_code == 404
        assert (await agent.send("and on", task["contextId"]))["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_folder_that_cannot_be_made_is_named(call: Call, file: str, tmp_path: Path) -> None:
    with_database(call, file)
    ended = call("backup", f"{file}/monday.db", "-c", file)
    assert (ended.code, ended.err) == (2, f"the folder {file} cannot be made: file exists\n")
    ended = call("backup", f"{file}/below/monday.db", "-c", file)
    assert (ended.code, ended.err) == (2, f"the folder {file}/below cannot be made: not a directory\n")


def test_a_backup_is_one_file_that_only_its_owner_can_read(call: Call, file: str, copy: Path) -> None:
    with_database(call, file)
    made = call("backup", str(copy), "-c", file)
    assert made.out.startswith(f"{copy}: ")
    assert [path.name for path in copy.parent.iterdir()] == ["monday.db"]
    assert copy.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_backup_never_overwrites_a_file(call: Call, file: str, copy: Path) -> None:
    with_database(call, file)
    copy.parent.mkdir()
    copy.write_text("mine")
    again = call("backup", str(copy), "-c", file)
    assert (again.code, again.out, copy.read_text()) == (2, "", "mine")
    assert f"{copy} is there already: choose another name" in again.err


_KILLED = """
import os, signal, sys
from pathlib import Path
from storage.schema import backup
backup.check = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
backup.back_up(*map(Path, sys.argv[1:]))
"""


def test_what_a_killed_backup_has_left_is_removed_by_the_next_one(
    call: Call, tmp_path: Path, file: str, copy: Path
) -> None:
    with_database(call, file)
    copy.parent.mkdir()
    killed = subprocess.run([sys.executable, "-c", _KILLED, tmp_path / "gateway.db", copy], check=False)
    assert (killed.returncode, len(list(copy.parent.iterdir()))) == (-signal.SIGKILL, 1)
    assert call("backup", str(copy), "-c", file).code == 0
    assert list(copy.parent.iterdir()) == [copy]


def test_where_there_is_no_database_no_backup_is_made(call: Call, file: str, copy: Path) -> None:
    made = call("backup", str(copy), "-c", file)
    assert made.code == 69
    assert "there is no database" in made.err
    assert list(copy.parent.iterdir()) == []


def test_a_damaged_database_gives_no_backup(call: Call, tmp_path: Path, file: str, copy: Path) -> None:
    with_database(call, file)
    damage(tmp_path / "gateway.db")
    made = call("backup", str(copy), "-c", file)
    assert made.code == 69
    assert list(copy.parent.iterdir()) == []


def test_a_copy_that_was_cut_gives_no_backup_and_is_none(call: Call, tmp_path: Path, file: str, copy: Path) -> None:
    with_database(call, file)
    half = tmp_path / "gateway.db"
    with open_rows(half, True) as rows:
        rows.begin("another")
    why = "is not whole: a copy into it has begun and not ended: finish it by the same `storage copy` or `restore`"
    made = call("backup", str(copy), "-c", file)
    assert (made.code, made.err.startswith(f"no backup was made: '{half}' {why}")) == (69, True), made.err
    assert list(copy.parent.iterdir()) == []
    other = half.rename(tmp_path / "half.db")
    restored = call("restore", str(other), "-c", file)
    assert (restored.code, restored.err.startswith(f"nothing was restored: '{other}' {why}")) == (69, True)


def damage(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(database.read_bytes())
    content[:40960] = b"\xff" * 40960
    database.write_bytes(content)


def test_a_database_that_is_there_is_replaced_only_when_asked_and_kept(
    call: Call, tmp_path: Path, file: str, copy: Path
) -> None:
    with_database(call, file)
    call("backup", str(copy), "-c", file)
    call("keys", "create", "second", "-c", file)
    refused = call("restore", str(copy), "-c", file)
    assert refused.code == 2
    assert f"restore {copy} --replace -c {file}" in refused.err
    assert names(call, file) == ["first", "second"]
    restored = call("restore", str(copy), "--replace", "-c", file)
    assert restored.code == 0
    assert names(call, file) == ["first"]
    [aside] = kept(tmp_path)
    assert f"the database that was there is kept as {aside}\n" in restored.out
    with closing(sqlite3.connect(aside)) as connection:
        assert connection.execute("SELECT count(*) FROM api_key").fetchone() == (2,)


def test_two_restores_in_one_second_keep_both_databases(call: Call, tmp_path: Path, file: str, copy: Path) -> None:
    with_database(call, file)
    call("backup", str(copy), "-c", file)
    for _ in range(3):
        restored = call("restore", str(copy), "--replace", "-c", file)
        assert (restored.code, restored.err) == (0, "")
    assert len(kept(tmp_path)) == 3
    assert list(tmp_path.glob("a2a-gateway-draft-*")) == []


def test_a_restored_database_has_the_owner_and_the_mode_of_the_one_before(
    call: Call, tmp_path: Path, file: str, copy: Path
) -> None:
    with_database(call, file)
    call("backup", str(copy), "-c", file)
    database = tmp_path / "gateway.db"
    if os.geteuid() == 0:
        os.chown(database, 4321, 4322)
    database.chmod(0o640)
    before = database.stat()
    assert call("restore", str(copy), "--replace", "-c", file).code == 0
    after = database.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert after.st_ino != before.st_ino


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_database_that_root_restores_belongs_to_the_owner_of_its_folder(
    call: Call, tmp_path: Path, file: str, copy: Path
) -> None:
    lose_database_that_has_a_backup(call, tmp_path, file, copy)
    os.chown(tmp_path, 4321, 4322)
    assert call("restore", str(copy), "-c", file).code == 0
    restored = (tmp_path / "gateway.db").stat()
    assert (restored.st_uid, restored.st_gid, restored.st_mode & 0o777) == (4321, 4322, 0o600)


def test_a_restore_that_the_disk_does_not_take_names_the_folder_and_leaves_nothing(
    call: Call, tmp_path: Path, file: str, copy: Path
) -> None:
    lose_database_that_has_a_backup(call, tmp_path, file, copy)
    program = (
        "import resource, sys\n"
        "from gateway.cli.main import run\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))\n"
        "code = run(sys.argv[1:])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))\n"  # what measures coverage writes a file, too
        "sys.exit(code)\n"
    )
    command = [sys.executable, "-c", program, "restore", str(copy), "-c", file]
    ended = subprocess.run(command, timeout=60, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (69, f"nothing was restored: the folder {tmp_path}: file too large\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backups", "gateway.yaml"]


def test_a_folder_in_the_place_of_the_database_is_named(call: Call, tmp_path: Path, file: str, copy: Path) -> None:
    lose_database_that_has_a_backup(call, tmp_path, file, copy)
    (tmp_path / "gateway.db").mkdir()
    problem = f"'{tmp_path}/gateway.db' cannot be opened: it is a folder"
    commands = (
        ["keys", "list"],
        ["backup", f"{copy}.2"],
        ["restore", str(copy), "--replace"],
        ["serve"],
        ["check", "--live"],
    )
    for command in commands:
        ended = call(*command, "-c", file)
        assert (ended.code, problem in ended.err) == (69, True), ended.err
    checked = call("check", "-c", file)
    assert (checked.code, f"storage.url: {problem}" in checked.err) == (0, True), checked.err


async def test_a_database_that_a_gateway_uses_is_not_replaced(
    command_line: CommandLine, tmp_path: Path, file: str, copy: Path
) -> None:
    async with local_gateway(AGENTS, tmp_path, clock=Clock()) as gateway, a2a_http(gateway.url) as http:
        assert (await command_line("backup", str(copy), "-c", file)).code == 0
        refused = await command_line("restore", str(copy), "--replace", "-c", file)
        assert refused.code == 69
        assert refused.err.endswith("Stop the gateway first\n")
        assert (await A2A(http, "mine").send("still there"))["status"]["state"] == "TASK_STATE_COMPLETED"
    assert kept(tmp_path) == []


def lose_database(folder: Path) -> None:
    for file in folder.glob("gateway.db*"):
        file.unlink()


def lose_database_that_has_a_backup(call: Call, folder: Path, file: str, copy: Path) -> None:
    with_database(call, file)
    call("backup", str(copy), "-c", file)
    lose_database(folder)


def kept(folder: Path) -> list[Path]:
    return list(folder.glob("gateway.db.replaced-*"))


def test_a_damaged_database_can_be_replaced_and_its_log_is_not_replayed(
    call: Call, tmp_path: Path, file: str, copy: Path
) -> None:
    with_database(call, file)
    call("backup", str(copy), "-c", file)
    with closing(connect(str(tmp_path / "gateway.db"), 1000)) as connection:
        connection.execute("UPDATE api_key SET name = 'another'")
        log = (tmp_path / "gateway.db-wal").read_bytes()
    damage(tmp_path / "gateway.db")
    (tmp_path / "gateway.db-wal").write_bytes(log)
    assert call("restore", str(copy), "--replace", "-c", file).code == 0
    assert names(call, file) == ["first"]
    assert len(kept(tmp_path)) >= 1


@pytest.mark.parametrize("content", [b"", b"no database at all", None], ids=["empty", "text", "missing"])
def test_a_file_that_is_no_backup_changes_nothing(
    call: Call, tmp_path: Path, file: str, copy: Path, content: bytes | None
) -> None:
    with_database(call, file)
    copy.parent.mkdir()
    if content is not None:
        copy.write_bytes(content)
    refused = call("restore", str(copy), "--replace", "-c", file)
    assert refused.code == 69
    assert refused.err.startswith("nothing was restored: ")
    assert str(copy) in refused.err
    assert names(call, file) == ["first"]


def test_a_backup_of_a_newer_version_is_refused(call: Call, tmp_path: Path, file: str, copy: Path) -> None:
    with_database(call, file)
    call("backup", str(copy), "-c", file)
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.execute("PRAGMA user_version = 9999")
    refused = call("restore", str(copy), "--replace", "-c", file)
    assert refused.code == 69
    assert "newer than ours" in refused.err
    assert names(call, file) == ["first"]
