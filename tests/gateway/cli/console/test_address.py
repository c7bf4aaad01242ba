"""The agent that a command line names."""

import shlex
from pathlib import Path

import pytest

from gateway.cli.console.address import DEFAULT_URL, AgentAddress, read_address, read_headers, read_url
from gateway.cli.console.output import ExitCode, Stop
from gateway.client.transport import open_http
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


@pytest.mark.parametrize("credentials", ["me:hidden", "hidden", "me:hid@den", "me:hid/den", "me:hid den"])
def test_an_address_with_credentials_is_refused_without_showing_them(credentials: str) -> None:
    with pytest.raises(Stop, match=r"^'http://\*\*\*@host' (is no address|must have no user or password)"):
        read_url(f"http://{credentials}@host")


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


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


REMOTE = "https://agents.example"
SOCKS = "must be the address of an HTTP proxy, as http://host:port; SOCKS proxies are not supported"


@pytest.mark.parametrize("proxy", ["socks5://proxy:1080", "socks5h://me:secret@proxy", "SOCKS4://proxy"])
def test_a_socks_proxy_is_refused_as_such(proxy: str) -> None:
    with pytest.raises(Stop) as caught:
        read_address(None, REMOTE, None, (), proxy=proxy)
    assert (caught.value.code, caught.value.text) == (ExitCode.USAGE, f"--proxy {SOCKS}")


@pytest.mark.parametrize(
    "proxy", ["http://", "http://[::1", "http://proxy:x", "http://proxy:3128/path", "https://proxy"]
)
def test_a_proxy_without_a_usable_address_stops_the_command(proxy: str) -> None:
    with pytest.raises(Stop, match="--proxy must be the address of a proxy"):
        read_address(None, REMOTE, None, (), proxy=proxy)


@pytest.mark.parametrize("variable", ["ALL_PROXY", "all_proxy", "HTTPS_PROXY", "HTTP_PROXY"])
@pytest.mark.parametrize(
    ("proxy", "words"),
    [
        ("socks5://me:secret@proxy:1080", f"{SOCKS};"),
        ("socks5h://proxy", f"{SOCKS};"),
        ("http://[::1", "must be the address of a proxy"),
        ("ftp://proxy", "must be the address of a proxy"),
    ],
)
def test_a_proxy_of_the_environment_that_cannot_be_used_is_named_by_its_variable(
    no_proxies: pytest.MonkeyPatch, variable: str, proxy: str, words: str
) -> None:
    no_proxies.setenv(variable, proxy)
    with pytest.raises(Stop) as caught:
        read_address(None, REMOTE, None, ())
    assert caught.value.code == ExitCode.USAGE
    assert caught.value.text.startswith(f"{variable} {words}")
    assert caught.value.text.endswith("; unset it for this command, or name another with --proxy")
    assert "secret" not in caught.value.text


def test_a_proxy_of_the_environment_matters_only_where_it_would_be_used(no_proxies: pytest.MonkeyPatch) -> None:
    no_proxies.setenv("ALL_PROXY", "socks5://proxy:1080")
    read_address(None, "http://127.0.0.1:8080", None, ())
    read_address(None, "http://localhost:8080", None, ())
    read_address(None, REMOTE, None, (), proxy="http://proxy:3128")
    no_proxies.setenv("NO_PROXY", "a.example, *")
    read_address(None, REMOTE, None, ())


@pytest.mark.parametrize(
    "proxy", ["http://proxy:3128", "https://proxy", "proxy:3128", "http://me:secret@proxy:3128/", ""]
)
async def test_a_proxy_of_the_environment_that_the_client_takes_passes(
    no_proxies: pytest.MonkeyPatch, proxy: str
) -> None:
    no_proxies.setenv("HTTPS_PROXY", proxy)
    read_address(None, REMOTE, None, ())
    await open_http(REMOTE).aclose()


@pytest.mark.parametrize("url", [DEFAULT_URL, REMOTE])
def test_a_variable_that_names_no_authorities_stops_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(Stop) as caught:
        read_address(None, url, None, ())
    expected = f"SSL_CERT_FILE: the file {tmp_path}/none.pem cannot be read: no such file or directory"
    assert (caught.value.code, caught.value.text) == (ExitCode.USAGE, expected)
