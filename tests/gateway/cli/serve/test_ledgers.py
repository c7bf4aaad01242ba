"""A ledger of a third party, from its entry point to its rows. Nothing that is printed has the password of its URL."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.a2a_client import a2a_http
from tests.gateway.cli.served import answer, serving
from tests.support.installed import install, run, search_path

CONFIG = """\
version: 1
storage:
  url: "shelf://ada:s3cret@library"
  folder: ./books
agents:
  echo: {type: python, ref: "gateway.cli.demo.agent:reply"}
"""


@pytest.fixture(autouse=True)
def hangups() -> Iterator[None]:
    """Tests that run under nohup ignore SIGHUP, and so would what they start."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with the package, its configuration, and the folder of its books."""
    ledgers = {
        "shelf": "tests.support.shelf:factory",
        "bare": "tests.support.shelf:without_url",
        "gone": "no.such:thing",
    }
    install(tmp_path, {"acme-shelves": {}}, {}, ledgers=ledgers)
    (tmp_path / "gateway.yaml").write_text(CONFIG)
    (tmp_path / "books").mkdir()
    return tmp_path


def change(site: Path, before: str, after: str) -> None:
    file = site / "gateway.yaml"
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


def test_a_ledger_that_cannot_be_opened_is_named_without_its_password(site: Path) -> None:
    change(site, "folder: ./books", "folder: ./books\n  open: false")
    for command in (("serve",), ("keys", "list")):
        ended = run(site, *command)
        told = "the database shelf://***@library cannot be used: the library is closed"
        assert (ended.returncode, told in ended.stderr, "s3cret" in ended.stderr) == (69, True, False), ended.stderr


def test_a_ledger_that_goes_away_while_the_gateway_starts_is_named(site: Path) -> None:
    change(site, "folder: ./books", "folder: ./books\n  closes: true")
    ended = run(site, "serve", "--port", "0")
    told = "the database shelf://***@library cannot be used: the library has closed"
    assert (ended.returncode, told in ended.stderr, "Traceback" in ended.stderr) == (69, True, False), ended.stderr


@pytest.mark.parametrize(
    ("scheme", "problem"),
    [
        (
            "gone",
            (
                "the plug-in 'gone' (entry point no.such:thing of acme-shelves 1.2) cannot be loaded: "
                "ModuleNotFoundError: No module named 'no'"
            ),
        ),
        ("bare", "the plug-in 'bare' cannot be used: its settings have no `url`"),
        (
            "shef",
            (
                "unknown kind of storage 'shef'; did you mean 'shelf'? "
                "installed: bare, gone, postgres, postgresql, shelf, sqlite, temporary"
            ),
        ),
    ],
)
def test_an_unusable_plug_in_is_told_at_the_url_that_names_it(site: Path, scheme: str, problem: str) -> None:
    change(site, "shelf://", f"{scheme}://")
    ended = run(site, "check")
    assert (ended.returncode, ended.stderr) == (78, f"gateway.yaml:3:8: storage.url: {problem}\n")


@pytest.mark.parametrize("command", [("backup", "copy.db"), ("restore", "copy.db")])
def test_a_store_with_tools_of_its_own_is_neither_copied_nor_put_back(site: Path, command: tuple[str, ...]) -> None:
    ended = run(site, *command)
    assert (ended.returncode, ended.stderr) == (2, "the storage shelf is backed up with its own tools\n")


def test_its_settings_are_checked_printed_and_described(site: Path) -> None:
    printed = run(site, "check", "--print")
    assert printed.returncode == 0, printed.stderr
    assert '  url: "shelf://***@library"\n' in printed.stdout
    assert f"  folder: {site}/books\n  open: true  # default\n" in printed.stdout
    assert "Where the books are." in run(site, "schema").stdout

    (site / "books").rmdir()
    assert "warning: storage.url: there is no such folder" in run(site, "check").stderr


def test_a_key_is_made_where_its_settings_say(site: Path) -> None:
    assert run(site, "keys", "create", "ada").returncode == 0
    assert "ada" in run(site, "keys", "list").stdout
    assert (site / "books" / "books.db").is_file()


async def test_a_gateway_serves_from_it_and_keeps_its_password_to_itself(site: Path) -> None:
    async with serving(folder=site, PYTHONPATH=search_path(site)) as child, a2a_http(child.url) as http:
        assert (await child.logged("start.agents"))["database"] == "shelf://***@library"
        assert await answer(child, "echo") == "Your message has 1 word."
        assert (await http.get("/readyz?verbose")).json()["checks"] == {"database": "ok", "draining": "no"}
        change(site, "./books", "./other")
        change(site, "s3cret", "s3cret2")
        child.signal(signal.SIGHUP)
        changed = {(await child.logged("reload.needs-restart"))["setting"] for _ in range(2)}
        assert changed == {"storage.url", "storage.folder"}
        await child.logged("reload.done")
        assert b"s3cret" not in child.output
    assert (site / "books" / "books.db").is_file()
