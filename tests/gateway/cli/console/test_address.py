"""The agent that a command line names."""

import shlex
from pathlib import Path

import pytest

from gateway.cli.console.address import DEFAULT_URL, AgentAddress, read_address, read_headers, read_url
from gateway.cli.console.output import ExitCode, Stop
from tests.support.certificates import certificate


@pytest.fixture(autouse=True)
def called_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["a2a-gateway"])


def test_an_agent_may_be_a_name_or_an_address() -> None:
    assert read_address("notes", DEFAULT_URL, None, None) == AgentAddress(DEFAULT_URL, "notes", None, {})
    assert read_address("https://host/x", DEFAULT_URL, None, ["A: b"]) == AgentAddress(
        "https://host/x", None, None, {"A": "b"}
    )
    with pytest.raises(Stop, match="is no address"):
        read_address("ftp://host", DEFAULT_URL, None, None)


def test_a_command_to_copy_names_the_same_agent_without_secrets() -> None:
    address = AgentAddress("http://host:1", "notes", "rest", {"Authorization": "Bearer s3cret"})
    assert shlex.split(address.command("tasks", "watch", argument="t-1")) == [
        "a2a-gateway", "tasks", "watch", "-u", "http://host:1", "-a", "notes", "--binding", "rest",
        "--header", "Authorization: ...", "t-1",
    ]  # fmt: skip


def test_defaults_are_left_out_of_a_command() -> None:
    address = AgentAddress(DEFAULT_URL, None, None, {})
    assert address.command("tasks", "list") == "a2a-gateway tasks list"
    assert address.text == DEFAULT_URL


def test_an_id_that_looks_like_an_option_is_an_argument() -> None:
    address = AgentAddress(DEFAULT_URL, "notes", None, {})
    assert address.command("tasks", "watch", argument="-t") == "a2a-gateway tasks watch -a notes -- -t"
    assert address.text == f"{DEFAULT_URL}, agent 'notes'"


def test_a_key_goes_with_every_request_and_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    address = read_address("notes", DEFAULT_URL, None, ["X-Other: 1"], " a2agw_k\n")
    assert address.request_headers == {"X-Other": "1", "Authorization": "Bearer a2agw_k"}
    assert address.command("tasks", "list").endswith("--header 'X-Other: ...' --key ...")
    monkeypatch.setenv("A2A_GATEWAY_KEY", "a2agw_k")
    assert "--key" not in address.command("tasks", "list")
    assert read_address(None, DEFAULT_URL, None, ["authorization: Basic x"], "a2agw_k").request_headers == {
        "authorization": "Basic x"
    }
    assert read_address(None, DEFAULT_URL, None, None, "").request_headers == {}


@pytest.mark.parametrize("key", ["a b", "schl\u00fcssel", "a\nb: c", "a\x00"])
def test_an_impossible_key_is_refused_and_not_printed(key: str) -> None:
    with pytest.raises(Stop) as caught:
        read_address(None, DEFAULT_URL, None, None, key)
    assert (caught.value.code, caught.value.text) == (
        2,
        "the API key holds what no key can hold: is it whole, and nothing else?",
    )


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "https://agents.example.com/a2a/x/", "http://[::1]:1"])
def test_a_url_is_used_unchanged(url: str) -> None:
    assert read_url(url) == url


@pytest.mark.parametrize(
    "url", ["localhost", "localhost:8080", "ftp://x", "http://", "http://[::1", "http://a b", "http://x:99999", ""]
)
def test_a_malformed_url_is_refused(url: str) -> None:
    with pytest.raises(Stop, match="is no address; write one such as http"):
        read_url(url)


def test_headers_are_names_and_values() -> None:
    assert read_headers(["Authorization: Bearer a:b", "X_y:1", "Empty:"]) == {
        "Authorization": "Bearer a:b",
        "X_y": "1",
        "Empty": "",
    }


@pytest.mark.parametrize("header", ["no colon", ": value", "bad name: x", "N: v\u00e9", "N: a\r\nEvil: b"])
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(header: str) -> None:
    with pytest.raises(Stop) as caught:
        read_headers([header])
    assert caught.value.code == 2
    assert "Evil" not in caught.value.text


def test_an_authority_and_a_proxy_are_named_again_without_credentials(tmp_path: Path) -> None:
    file = certificate(tmp_path, "localhost")
    plain, secret = "http://proxy:3128", "http://me:secret@proxy:3128"
    assert read_address(None, DEFAULT_URL, None, (), None, file, plain).options == ["--ca", str(file), "--proxy", plain]
    assert read_address(None, DEFAULT_URL, None, (), None, None, secret).options == ["--proxy", "..."]


def test_an_authority_or_a_proxy_that_cannot_be_used_stops_the_command(tmp_path: Path) -> None:
    for ca, proxy, words in ((tmp_path / "none.pem", None, "--ca: the file"), (None, "proxy:3128", "--proxy must be")):
        with pytest.raises(Stop, match=words) as caught:
            read_address(None, DEFAULT_URL, None, (), None, ca, proxy)
        assert caught.value.code == ExitCode.USAGE
