"""`serve TARGET` and `check --live` in front of foreign servers."""

from pathlib import Path

from tests.gateway.cli.conftest import CommandLine, call, command_line
from tests.gateway.cli.served import answer, serving
from tests.interop.peer_processes import Aimock, Peer

__all__ = ["call", "command_line"]

_HELLO = "Hello from aimock, a longer reply so that several chunks are streamed."


async def test_a_chat_server_is_served_by_its_address(aimock_peer: Aimock, tmp_path: Path) -> None:
    async with serving(f"chat:{aimock_peer.url}#gpt-4", folder=tmp_path) as child:
        assert await answer(child, "gpt-4") == _HELLO


async def test_ollama_is_any_chat_server_at_another_address(aimock_peer: Aimock, tmp_path: Path) -> None:
    moved = {"A2A_GATEWAY__AGENTS__LOCAL__BASE_URL": aimock_peer.url}
    async with serving("local=ollama:llama3.3", folder=tmp_path, **moved) as child:
        assert await answer(child, "local") == _HELLO


async def test_openai_is_any_responses_server_at_another_address(ogx_peer: Peer, tmp_path: Path) -> None:
    moved = {"A2A_GATEWAY__AGENTS__REMOTE__BASE_URL": ogx_peer.url, "OPENAI_API_KEY": "none-is-needed"}
    async with serving("remote=openai:openai/gpt-4", folder=tmp_path, **moved) as child:
        assert await answer(child, "remote") == _HELLO


async def test_check_says_what_each_server_can_do(
    aimock_peer: Aimock, ogx_peer: Peer, agentserver_peer: Peer, tmp_path: Path, command_line: CommandLine
) -> None:
    file = tmp_path / "gateway.yaml"
    agents = {
        "aimock": f"{{type: openai-chat, model: gpt-4, base_url: '{aimock_peer.url}'}}",
        "ogx": f"{{type: openai-responses, model: openai/gpt-4, base_url: '{ogx_peer.url}'}}",
        "foundry": f"{{type: openai-responses, model: m, base_url: '{agentserver_peer.url}'}}",
    }
    file.write_text("version: 1\nagents:\n" + "".join(f"  {name}: {agent}\n" for name, agent in agents.items()))
    ended = await command_line("check", "--live", "-c", str(file))
    found = dict(line.removeprefix(f"{file}: agents.").split(": ", 1) for line in ended.out.splitlines()[1:])
    assert (ended.code, ended.err) == (0, "")
    assert found == {
        "aimock": "the model is listed; it streams",
        "ogx": "the model is listed; it streams; it refuses a response id that it does not know",
        "foundry": (
            "it streams; "
            "it takes a response id that it does not know: a conversation that it has lost goes on without its beginning"
        ),
    }
