"""Which agent is meant, and how to say so again."""

import shlex

import pytest

from gateway.cli.console.connect import Reach, reach
from gateway.cli.console.exits import Stop
from gateway.cli.console.parameters import DEFAULT_URL, BindingChoice


@pytest.fixture(autouse=True)
def called_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["a2a-gateway"])


def test_an_agent_may_be_a_name_or_an_address() -> None:
    assert reach("notes", DEFAULT_URL, None, None) == Reach(DEFAULT_URL, "notes", None, {})
    assert reach("https://host/x", DEFAULT_URL, None, ["A: b"]) == Reach("https://host/x", None, None, {"A": "b"})
    with pytest.raises(Stop, match="is no address"):
        reach("ftp://host", DEFAULT_URL, None, None)


def test_a_command_to_copy_leads_to_the_same_agent_and_keeps_secrets() -> None:
    there = Reach("http://host:1", "notes", BindingChoice.rest, {"Authorization": "Bearer s3cret"})
    assert shlex.split(there.command("tasks", "watch", argument="t-1")) == [
        "a2a-gateway", "tasks", "watch", "-u", "http://host:1", "-a", "notes", "--binding", "rest",
        "--header", "Authorization: ...", "t-1",
    ]  # fmt: skip


def test_what_is_usual_is_not_said() -> None:
    there = Reach(DEFAULT_URL, None, None, {})
    assert there.command("tasks", "list") == "a2a-gateway tasks list"
    assert there.place == DEFAULT_URL


def test_an_id_that_looks_like_an_option_is_none() -> None:
    there = Reach(DEFAULT_URL, "notes", None, {})
    assert there.command("tasks", "watch", argument="-t") == "a2a-gateway tasks watch -a notes -- -t"
    assert there.place == f"{DEFAULT_URL}, agent 'notes'"


def test_a_key_goes_with_every_request_and_is_not_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    there = reach("notes", DEFAULT_URL, None, ["X-Other: 1"], " a2agw_k\n")
    assert there.sent == {"X-Other": "1", "Authorization": "Bearer a2agw_k"}
    assert there.command("tasks", "list").endswith("--header 'X-Other: ...' --key ...")
    monkeypatch.setenv("A2A_GATEWAY_KEY", "a2agw_k")
    assert "--key" not in there.command("tasks", "list")
    assert reach(None, DEFAULT_URL, None, ["authorization: Basic x"], "a2agw_k").sent == {"authorization": "Basic x"}
    assert reach(None, DEFAULT_URL, None, None, "").sent == {}


@pytest.mark.parametrize("key", ["a b", "schl\u00fcssel", "a\nb: c", "a\x00"])
def test_what_cannot_be_a_key_is_not_sent_and_not_shown(key: str) -> None:
    with pytest.raises(Stop) as caught:
        reach(None, DEFAULT_URL, None, None, key)
    assert (caught.value.code, caught.value.text) == (
        2,
        "the API key holds what no key can hold: is it whole, and nothing else?",
    )
