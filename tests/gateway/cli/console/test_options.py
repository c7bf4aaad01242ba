"""Options that are more than words."""

import pytest

from gateway.cli.console.exits import Stop
from gateway.cli.console.parameters import read_headers, read_url


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "https://agents.example.com/a2a/x/", "http://[::1]:1"])
def test_an_address_of_the_web_is_taken_as_it_is(url: str) -> None:
    assert read_url(url) == url


@pytest.mark.parametrize(
    "url", ["localhost", "localhost:8080", "ftp://x", "http://", "http://[::1", "http://a b", "http://x:99999", ""]
)
def test_another_address_is_refused(url: str) -> None:
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
