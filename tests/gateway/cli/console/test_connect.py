"""Errors of the client: exit codes and texts."""

import pytest

from gateway.cli.console.connect import client_errors_stop, stop_for
from gateway.cli.console.output import Stop
from gateway.client.transport import ClientError, NotA2A, Refused, StreamLost, TlsFailed, Unreachable
from tests.gateway.cli.conftest import CommandLine
from tests.support.forward_proxy import forward_proxy
from tests.support.refusing import refusing_port


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (Unreachable("no"), 69, "no\nIs it running? Another address is given with -u URL."),
        (TlsFailed("expired"), 69, "expired"),
        (NotA2A("no card"), 69, "no card"),
        (StreamLost("lost"), 75, "lost"),
        (ClientError("odd"), 1, "odd"),
        (
            Refused("who?", status=401),
            77,
            (
                "not authorised: who?\n"
                "Give an API key that is in force (--key, or A2A_GATEWAY_KEY) or --header 'Authorization: ...'"
            ),
        ),
        (
            Refused("the key is not valid any more", status=200, reason="UNAUTHENTICATED"),
            77,
            (
                "not authorised: the key is not valid any more\n"
                "Give an API key that is in force (--key, or A2A_GATEWAY_KEY) or --header 'Authorization: ...'"
            ),
        ),
        (
            Refused("no", status=403),
            77,
            (
                "not authorised: no\n"
                "Give a key that may do this (--key, or A2A_GATEWAY_KEY); for the admin API: keys create NAME --admin"
            ),
        ),
        (
            Refused("http://h/x answered HTTP 407", status=407, unexplained=True),
            69,
            (
                "http://h/x answered HTTP 407\n"
                "A proxy asks for credentials: name it as http://user:password@host:port, in --proxy or HTTPS_PROXY."
            ),
        ),
        (Refused("busy", status=503, retry_after=2), 75, "busy\nTry again in 2 s."),
        (Refused("slow down", status=429), 75, "slow down\nTry again later."),
        (Refused("down", status=502), 69, "down"),
        (
            Refused("http://h/x answered HTTP 404 Not Found", status=404, unexplained=True),
            69,
            (
                "http://h/x answered HTTP 404 Not Found\n"
                "There is no A2A agent at this address. Another is given with -u URL."
            ),
        ),
        (Refused("Task not found", status=200, code=-32001), 1, "the agent refused: Task not found"),
    ],
)
def test_an_error_has_an_exit_code_and_words(error: ClientError, code: int, text: str) -> None:
    with pytest.raises(Stop) as caught, client_errors_stop():
        raise error
    assert (caught.value.code, caught.value.text) == (code, text)
    assert stop_for(error).text == text


REMOTE = "https://agents.example"
RIGHT = "Is the proxy right? Another is given with --proxy URL; NO_PROXY names hosts that need none."


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "all_proxy", "--proxy"])
async def test_a_proxy_that_is_not_there_is_named_with_its_place(
    command_line: CommandLine, no_proxies: pytest.MonkeyPatch, variable: str
) -> None:
    proxy = f"http://127.0.0.1:{refusing_port()}"
    secret = proxy.replace("://", "://me:secret@")
    if variable != "--proxy":
        no_proxies.setenv(variable, secret)
    option = ["--proxy", secret] if variable == "--proxy" else []
    ended = await command_line("card", "-u", REMOTE, *option)
    shown = proxy.replace("://", "://***@")
    reason = f"connection refused (through the proxy {shown}, of {variable})"
    assert (ended.code, ended.err) == (
        69,
        f"{REMOTE}/.well-known/agent-card.json cannot be reached: {reason}\n{RIGHT}\n",
    )


async def test_a_proxy_that_refuses_is_named_with_its_refusal(
    command_line: CommandLine, no_proxies: pytest.MonkeyPatch
) -> None:
    async with forward_proxy("407 Proxy Authentication Required") as proxy:
        no_proxies.setenv("HTTPS_PROXY", proxy.url)
        no_proxies.setenv("HTTP_PROXY", proxy.url)
        tunnel = await command_line("card", "-u", REMOTE)
        plain = await command_line("card", "-u", "http://agents.example")
    through = f"through the proxy {proxy.url}, of HTTPS_PROXY"
    assert tunnel.code == plain.code == 69
    assert f": the proxy answers 407 Proxy Authentication Required ({through})\n{RIGHT}\n" in tunnel.err
    assert "answered HTTP 407 Proxy Authentication Required\nA proxy asks for credentials: " in plain.err


async def test_a_host_that_needs_no_proxy_is_not_said_to_have_one(
    command_line: CommandLine, no_proxies: pytest.MonkeyPatch
) -> None:
    no_proxies.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    no_proxies.setenv("NO_PROXY", "nowhere.invalid")
    for url in ("https://nowhere.invalid", f"https://localhost:{refusing_port()}"):
        ended = await command_line("card", "-u", url)
        assert "proxy" not in ended.err
        assert ended.err.endswith("Is it running? Another address is given with -u URL.\n")
