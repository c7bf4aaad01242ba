"""Pages for consent in the message of a task that waits: only what is an address and nothing else."""

from typing import Any

import pytest

from adapters.a2a.consent import pages
from gateway.a2a.model import Message, Part, Role
from gateway.a2a.tool_calls import URI
from gateway.ports.adapter import ConsentAsked

PAGE = "https://login.example/consent?state=x"


def found(*parts: Part, **more: Any) -> tuple[ConsentAsked, ...]:
    return pages(Message(message_id="m", role=Role.AGENT, parts=parts, **more))


@pytest.mark.parametrize(
    "part",
    [
        Part(text=f"Open {PAGE} please"),
        Part(text="login.example"),
        Part(url="file:///etc/passwd"),
        Part(data={"url": "javascript:alert(1)"}),
        Part(data={"link": PAGE}),
        Part(data=[PAGE]),
        Part(text="http://login.example/in-the-clear"),
        Part(url="https://user@login.example"),
    ],
)
def test_what_is_no_address_or_not_only_one_is_no_page(part: Part) -> None:
    assert found(part) == ()


def test_without_a_message_there_is_none() -> None:
    assert pages(None) == ()


@pytest.mark.parametrize(
    "part", [Part(text=f" {PAGE}\n"), Part(url=PAGE), Part(data={"authUri": PAGE}), Part(data={"url": PAGE})]
)
def test_an_address_is_a_page_with_the_words_beside_it(part: Part) -> None:
    assert found(Part(text="Log in first."), part) == (ConsentAsked(PAGE, text="Log in first."),)


def test_links_of_a_gateway_keep_their_server_and_their_reason() -> None:
    links = [{"id": "1", "url": PAGE, "server": "mcp:mail", "text": "To read."}, {"url": f"{PAGE}2"}, {"id": "3"}, 4]
    metadata = {URI: {"consent": {"requestId": "r", "links": links}}}
    assert found(Part(text="words"), metadata=metadata) == (
        ConsentAsked(PAGE, "mcp:mail", "To read."),
        ConsentAsked(f"{PAGE}2"),
    )


def test_links_that_no_user_may_be_sent_to_are_left_out() -> None:
    metadata = {URI: {"consent": {"links": [{"url": "http://login.example"}, {"url": PAGE}]}}}
    assert found(metadata=metadata) == (ConsentAsked(PAGE),)


def test_there_are_no_more_pages_than_a_call_may_have() -> None:
    assert len(found(*(Part(text=f"{PAGE}{number}") for number in range(40)))) == 16


def test_a_page_that_is_named_twice_is_one() -> None:
    assert len(found(Part(text=PAGE), Part(url=PAGE))) == 1
