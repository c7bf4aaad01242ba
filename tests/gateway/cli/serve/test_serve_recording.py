"""`serve --record` and `serve --replay`."""

import asyncio
import signal
from pathlib import Path

import pytest

from gateway.ports.wire import End
from gateway.recording.recordings import Recordings
from tests.a2a_client import A2A, a2a_http, why
from tests.emulators.chat import ChatServer
from tests.emulators.scripts import Conversation, Pause, Say
from tests.gateway.cli.conftest import Call
from tests.gateway.cli.served import Served, answer, serving
from tests.gateway.recording.support import written
from tests.support.polling import until

KEY = "sk-proj-0123456789abcdef"
CONFIG = """\
version: 1
storage: {url: temporary}
agents:
  a: {type: openai-chat, model: m, base_url: "URL/v1", api_key: "${OPENAI_API_KEY}", history: {max_messages: 10}}
"""


def talks(conversation: Conversation) -> list[Say]:
    return [Say(f"You have said {conversation.text}, and your key is {KEY}.")]


async def ended(child: Served) -> int:
    child.signal(signal.SIGTERM)
    return await child.ended()


async def take(folder: Path) -> str:
    """Records one answer, which is given back."""
    async with ChatServer(talks, api_key=KEY).serve() as url:
        (folder / "gateway.yaml").write_text(CONFIG.replace("URL", url))
        async with serving("--record", "taken", folder=folder, OPENAI_API_KEY=KEY) as child:
            said = await answer(child, "a")
            assert await ended(child) == 0
    return said


async def test_a_recording_is_replayed_without_backend_and_secret(tmp_path: Path) -> None:
    said = await take(tmp_path)
    assert KEY not in written(tmp_path / "taken")
    async with serving("--replay", "taken", "--strict", folder=tmp_path) as child:
        assert await answer(child, "a") == said.replace(KEY, "[redacted]")
        assert await ended(child) == 0


async def test_with_strict_a_request_without_an_answer_and_an_unused_recording_are_told_at_the_end(
    tmp_path: Path,
) -> None:
    await take(tmp_path)
    async with serving("--replay", "taken", "--strict", folder=tmp_path) as child:
        async with a2a_http(child.url) as http:
            state, text = why(await A2A(http, "a").send("Hallo"))
        assert state == "TASK_STATE_FAILED"
        assert text.endswith("The nearest recording, a/c01/0001.yaml, differs at $.messages[0].content.")
        missing = await child.logged("replay.missing")
        assert (missing["agent"], missing["diff"]) == ("a", "unmatched/0001.diff")
        assert await ended(child) == 1
        output = child.output.decode()
    assert "the replay of taken did not fit:\n" in output
    assert "a/c01/0001.yaml: nobody asked for it\n" in output


async def test_without_strict_the_end_is_as_always(tmp_path: Path) -> None:
    await take(tmp_path)
    async with serving("--replay", "taken", "--replay-speed", "10", folder=tmp_path) as child:
        assert await ended(child) == 0


async def test_what_a_killed_gateway_has_recorded_can_be_read(tmp_path: Path) -> None:
    pause = Pause(asyncio.Event())
    taken = tmp_path / "taken"
    async with ChatServer(lambda _: [Say("It is"), pause]).serve() as url:
        (tmp_path / "gateway.yaml").write_text(CONFIG.replace("URL", url))
        async with (
            serving("--record", "taken", folder=tmp_path, OPENAI_API_KEY=KEY) as child,
            a2a_http(child.url) as http,
            A2A(http, "a").stream("Hello") as stream,
        ):
            await stream.read(1)
            await until(lambda: "It is" in written(taken))
            await child.kill()
    [exchange] = Recordings(taken).all()
    assert (exchange.status, exchange.end.how) == (200, End.CUT)
    assert b"It is" in b"".join(read for _, read in exchange.reads)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--record", "a", "--replay", "b"], "--record and --replay exclude each other"),
        (["--strict"], "--strict and --replay-speed go with --replay DIR"),
        (["--replay-speed", "10"], "--strict and --replay-speed go with --replay DIR"),
        (["--replay", "nowhere"], "nowhere cannot be used for recordings"),
        (["--replay", "."], "there are no recordings in it"),
        (["--record", "gateway.yaml"], "gateway.yaml cannot be used for recordings"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    (tmp_path / "gateway.yaml").write_text(CONFIG.replace("URL", "http://127.0.0.1:1"))
    ended_ = call("serve", *arguments)
    assert ended_.code == 2
    assert says in ended_.err
