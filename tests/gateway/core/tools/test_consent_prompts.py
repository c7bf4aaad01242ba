"""Pages that a user has to open: the allowed addresses, and the prompt."""

from typing import Any

import pytest

from gateway.a2a.model import Message, Part, Role
from gateway.a2a.tool_calls import URI
from gateway.core.tools import prompts
from gateway.core.tools.prompts import LONGEST, MOST
from gateway.core.tools.tool_call import ConsentLink
from tests.tool_call_vectors import valid

PAGE = "https://login.example/consent?state=a%20b"


@pytest.mark.parametrize(
    "url",
    [
        PAGE,
        "https://login.example:8443/a/b#c",
        "http://127.0.0.1:9/consent",
        "http://localhost/",
        "http://[::1]:80/",
        "https://a.example/" + "x" * (LONGEST - len("https://a.example/")),
    ],
)
def test_a_page_on_the_web_or_on_this_machine_may_be_named(url: str) -> None:
    prompts.check(url)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://login.example/", "not one of https"),
        ("http://localhost.example/", "not one of https"),
        ("javascript:alert(1)", "no host"),
        ("data:text/html,hi", "no host"),
        ("file:///etc/passwd", "no host"),
        ("ftp://login.example/", "not one of https"),
        ("//login.example/", "not one of https"),
        ("login.example", "no host"),
        ("", "no host"),
        ("https://bank.example@evil.example/", "a user before it"),
        ("https:\\\\login.example/", "characters that no address has"),
        ("https://login.example/a b", "characters that no address has"),
        ("https://login.example/\n", "characters that no address has"),
        ("https://login.example/\x1b[31m", "characters that no address has"),
        ("https://login.example/\u202e", "characters that no address has"),
        ("https://lоgin.example/", "characters that no address has"),  # a Cyrillic o
        ("https://[::1/", "in brackets that is no address"),
        ("https://[secret]/", r"^the address has a host in brackets that is no address$"),
        ("https://a.example/" + "x" * LONGEST, "more than 8192"),
    ],
)
def test_nobody_is_sent_to_any_other_address(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        prompts.check(url)


def test_nobody_is_sent_to_more_pages_than_he_would_open() -> None:
    prompts.check_all([PAGE] * MOST)
    with pytest.raises(ValueError, match="17 addresses, more than 16"):
        prompts.check_all([PAGE] * (MOST + 1))
    with pytest.raises(ValueError, match="not one of https"):
        prompts.check_all([PAGE, "http://login.example/"])


def test_the_address_is_a_separate_part_after_the_text() -> None:
    parts, ours = prompts.consent_prompt([ConsentLink("c1", PAGE, "mcp:mail")], "r1")
    assert parts == (
        Part(
            text="Your consent for mcp:mail is needed at a third party. Open this page, then answer on this task to go on:\n"
        ),
        Part(text=PAGE),
    )
    assert ours == {"requestId": "r1", "links": [{"id": "c1", "url": PAGE, "server": "mcp:mail"}]}
    assert valid("consent", {"consent": ours})


def test_several_pages_are_all_named() -> None:
    parts, ours = prompts.consent_prompt(
        [ConsentLink("a", PAGE), ConsentLink("b", PAGE + "2")], "r1", "2026-11-21T10:00:00.000Z"
    )
    assert [part.text for part in parts[1::2]] == [PAGE, PAGE + "2"]
    assert valid("consent", {"consent": ours})


def test_what_a_stranger_says_of_it_is_one_short_line() -> None:
    link = ConsentLink("c1", PAGE, "mcp:a\nb", "Sign in.\x1b[2J\r\n" + "x" * 1000)
    parts, ours = prompts.consent_prompt([link], "r1")
    words = parts[0].text or ""
    assert words.startswith("Your consent for mcp:a b is needed at a third party. It says: Sign in. [2J xxx")
    assert len(words) < 600
    assert valid("consent", {"consent": ours})


def test_a_question_is_read_back_as_it_was_asked() -> None:
    links = [ConsentLink("a", PAGE, "mcp:mail", "To read it.", "call_1"), ConsentLink("b", PAGE)]
    parts, ours = prompts.consent_prompt(links, "r1", "2026-11-21T10:00:00.000Z")
    message = Message(message_id="m", role=Role.AGENT, parts=parts, metadata={URI: {"consent": ours}})
    assert valid("consent", {"consent": ours})
    assert list(prompts.links_of(message)) == links


@pytest.mark.parametrize(
    "metadata", [None, {}, {URI: None}, {URI: {"consent": {"links": [None, {}, {"id": 1, "url": PAGE}]}}}]
)
def test_another_message_names_no_page(metadata: Any) -> None:
    message = Message(message_id="m", role=Role.AGENT, parts=(Part(text="hi"),), metadata=metadata)
    assert list(prompts.links_of(message)) == []
    assert list(prompts.links_of(None)) == []
