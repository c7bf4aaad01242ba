"""`serve` behind a proxy, on all addresses and with keys: what it says, and how the command line reaches it."""

from pathlib import Path

import pytest

from tests.gateway.cli.conftest import Call, CommandLine
from tests.gateway.cli.served import serving

CONFIG = """\
version: 1
storage: {url: "sqlite:///gateway.db"}
agents:
  echo: {type: python, ref: "./agent.py:reply", default: true}
  other: {type: python, ref: "./agent.py:reply"}
"""
PUBLIC = "https://agents.invalid/base"

TEXT = ("--log-format", "text", "--log-level", "warning")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gateway.yaml").write_text(CONFIG)
    (tmp_path / "agent.py").write_text("def reply(text): return f'heard {text}'\n")
    return tmp_path


async def test_the_command_line_reaches_a_gateway_whose_cards_lead_elsewhere(
    folder: Path, command_line: CommandLine
) -> None:
    async with serving(folder=folder, A2A_GATEWAY__SERVER__PUBLIC_URL=PUBLIC) as child:
        for words in (
            ("send", "Hi", "-u", child.url),
            ("stream", "Hi", "-u", child.url, "-a", "other"),
            ("send", "Hi", "-u", f"{child.url}/a2a/other"),
            ("send", "Hi", "-u", f"{child.url}/a2a/other/.well-known/agent-card.json", "--binding", "rest"),
        ):
            ended = await command_line(*words)
            assert (ended.code, ended.out) == (0, "heard Hi\n"), ended.err
        for words in (("tasks", "list", "-u", child.url), ("contexts", "list", "-u", child.url, "-a", "other")):
            assert (await command_line(*words)).code == 0
        card = await command_line("card", "-u", child.url)
        assert f" at {PUBLIC}/a2a/echo\n" in card.out


async def test_the_banner_shows_where_it_listens_and_what_the_cards_say(folder: Path) -> None:
    async with serving(*TEXT, folder=folder, A2A_GATEWAY__SERVER__PUBLIC_URL=PUBLIC) as child:
        lines = bytes(child.output).decode().splitlines()
        assert lines[:2] == [
            f"a2a-gateway serves 2 agents on {child.url}; the cards name {PUBLIC}",
            f"  {child.url}/a2a/echo/.well-known/agent-card.json",
        ]
        assert lines[3].endswith(f" stream -u {child.url} -a echo 'Hello'")


async def test_a_gateway_on_all_addresses_says_so_and_how_this_machine_reaches_it(folder: Path) -> None:
    async with serving("--host", "0.0.0.0", "--insecure", *TEXT, folder=folder) as child:
        lines = bytes(child.output).decode().splitlines()
        port = child.url.rpartition(":")[2]
        assert lines[0].startswith("warning: server.public_url: is not given, so the cards send clients to ")
        assert lines[1:3] == [
            f"a2a-gateway serves 2 agents on http://0.0.0.0:{port}",
            f"  http://127.0.0.1:{port}/a2a/echo/.well-known/agent-card.json",
        ]


@pytest.mark.parametrize("words", [(), ("-c", "./gateway.yaml"), ("-c", "my gateway.yaml")])
async def test_the_banner_of_a_gateway_with_keys_says_how_to_send_and_to_make_one(
    folder: Path, words: tuple[str, ...]
) -> None:
    text = CONFIG + "auth: {mode: any_of, api_keys: {enabled: true}}\n"
    for name in ("gateway.yaml", "my gateway.yaml"):
        (folder / name).write_text(text)
    async with serving(*words, *TEXT, folder=folder) as child:
        lines = bytes(child.output).decode().splitlines()
        option = " -c 'my gateway.yaml'" if "my gateway.yaml" in words else ""
        assert lines[3].endswith(f" stream -u {child.url} -a echo --key KEY 'Hello'")
        assert lines[4].startswith("A key: ")
        assert lines[4].endswith(f" keys create NAME{option}")


def test_check_warns_on_standard_error_and_passes(folder: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2A_GATEWAY_SERVER_PORT", "9000")
    ended = call("check", "-c", str(folder / "gateway.yaml"))
    assert (ended.code, ended.out) == (0, f"{folder}/gateway.yaml: ok; agents: echo, other\n")
    assert ended.err == (
        "warning: environment: A2A_GATEWAY_SERVER_PORT: sets nothing; did you mean A2A_GATEWAY__SERVER__PORT?\n"
    )


CANNOT = "server.host: this machine cannot listen on"
OPEN = "can be reached from other machines and auth.mode is none, so anyone could use the agents; "


@pytest.mark.parametrize(
    ("host", "warnings"),
    [
        ("0.0.0.0", ["server.public_url: is not given, ", f"server.host: '0.0.0.0' {OPEN}"]),
        (
            "192.0.2.1",
            [
                f"server.host: '192.0.2.1' {OPEN}",
                f"{CANNOT} '192.0.2.1': cannot assign requested address",
            ],
        ),
        ("no-such-host.invalid", [f"server.host: 'no-such-host.invalid' {OPEN}", f"{CANNOT} "]),
        (
            "ä..b",
            [f"server.host: 'ä..b' {OPEN}", f"{CANNOT} 'ä..b': no host can have "],
        ),
        ("127.0.0.1", []),
        ("localhost", []),
    ],
)
def test_check_warns_of_an_address_that_serve_refuses(folder: Path, call: Call, host: str, warnings: list[str]) -> None:
    (folder / "gateway.yaml").write_text(f"{CONFIG}server: {{host: {host!r}}}\n")
    ended = call("check", "-c", str(folder / "gateway.yaml"))
    assert (ended.code, ended.out) == (0, f"{folder}/gateway.yaml: ok; agents: echo, other\n")
    told = [line.removeprefix("warning: ") for line in ended.err.splitlines()]
    assert [line[: len(begin)] for line, begin in zip(told, warnings, strict=True)] == warnings


async def test_an_address_for_metrics_where_nothing_can_listen_is_named(
    folder: Path, command_line: CommandLine
) -> None:
    file = folder / "gateway.yaml"
    file.write_text(f"{CONFIG}metrics: {{listen: '192.0.2.1:9464'}}\n")
    checked = await command_line("check", "-c", str(file))
    assert checked.code == 0
    assert checked.err == (
        "warning: metrics.listen: this machine cannot listen on '192.0.2.1': cannot assign requested address\n"
    )
    served = await command_line("serve", "-c", str(file), "--port", "0")
    assert served.code == 78
    line = len(file.read_text().splitlines())
    assert served.err.startswith(f"{file}:{line}:11: metrics.listen: cannot listen on 192.0.2.1:9464: ")


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "ä..b"])
async def test_an_address_where_serve_cannot_listen_is_named(
    folder: Path, command_line: CommandLine, host: str
) -> None:
    file = str(folder / "gateway.yaml")
    ended = await command_line("serve", "-c", file, "--host", host, "--port", "0", "--insecure", *TEXT)
    assert (ended.code, ended.out) == (78, "")
    assert ended.err.startswith(f"cannot listen on {host}:0: ")
    assert "while" not in ended.err
    assert ended.err.endswith("; choose another --host or --port\n")


async def test_modules_in_the_working_directory_do_not_take_the_place_of_the_gateways(folder: Path) -> None:
    """`python -m` searches the working directory first."""
    (folder / "storage.py").write_text("raise RuntimeError('not the storage of the gateway')\n")
    (folder / "adapters").mkdir()
    (folder / "adapters" / "__init__.py").write_text("raise RuntimeError('not the adapters of the gateway')\n")
    async with serving(*TEXT, folder=folder) as child:
        assert b"a2a-gateway serves 2 agents" in child.output
