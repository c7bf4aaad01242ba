"""Addresses with arguments: any text of a model stays in its place."""

from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.tools.http import ArgumentRefused, UrlTemplate, with_query
from gateway.a2a.model import Json

ORDERS = "https://api.example:8443/v1/orders/{id}/lines?lang=en&page={page}&q={text}"


@pytest.mark.parametrize(
    ("url", "arguments", "filled"),
    [
        (ORDERS, {"id": 7}, "https://api.example:8443/v1/orders/7/lines?lang=en"),
        (
            ORDERS,
            {"id": "a/b?c#d", "page": 2, "text": "x&y=z é"},
            "https://api.example:8443/v1/orders/a%2Fb%3Fc%23d/lines?lang=en&page=2&q=x%26y%3Dz%20%C3%A9",
        ),
        ("http://{host}/", {"host": "Api-1.example.com"}, "http://Api-1.example.com/"),
        ("http://{region}.example.com:81", {"region": "eu"}, "http://eu.example.com:81/"),
        ("http://h/{a}{b}", {"a": True, "b": None}, "http://h/truenull"),
        ("http://h/x?f={f}", {"f": ["a", 1]}, "http://h/x?f=%5B%22a%22%2C1%5D"),
        ("http://h/x?f={f}", {"f": None}, "http://h/x"),
        ("http://h/{a}", {"a": "%2e%2e"}, "http://h/%252e%252e"),
        ("http://h/v.{a}", {"a": "."}, "http://h/v.."),
        ("http://h/{a}", {"a": "x\ud800"}, "http://h/x%3F"),
        ("http://h?a={a}", {"a": "1"}, "http://h/?a=1"),
    ],
)
def test_arguments_are_written_into_their_places(url: str, arguments: dict[str, Json], filled: str) -> None:
    assert UrlTemplate.parse(url).fill(arguments)[1] == filled


def test_it_knows_its_places_and_which_are_needed() -> None:
    orders = UrlTemplate.parse(ORDERS)
    assert (orders.places, orders.required, orders.has_variable_host) == (
        frozenset({"id", "page", "text"}),
        frozenset({"id"}),
        False,
    )
    assert UrlTemplate.parse("http://{a}.example/{b}").has_variable_host


@pytest.mark.parametrize("text", ["..", ".", ""])
def test_an_argument_cannot_climb_out_of_its_path(text: str) -> None:
    with pytest.raises(ArgumentRefused, match="it stands in a path"):
        UrlTemplate.parse("http://h/a/{x}/b").fill({"x": text})


def test_an_argument_cannot_climb_behind_a_dot_that_is_percent_encoded() -> None:
    with pytest.raises(ArgumentRefused, match="it stands in a path"):
        UrlTemplate.parse("http://h/a/%2e{x}/b").fill({"x": "."})


def test_two_arguments_cannot_climb_together() -> None:
    with pytest.raises(ArgumentRefused, match="it stands in a path"):
        UrlTemplate.parse("http://h/a/{x}{y}").fill({"x": ".", "y": "."})


@pytest.mark.parametrize(
    "text", ["", "a/b", "a@b", "a:1", "a?b", "a#b", "[::1]", "a b", "-a", "a.", ".a", "é", "a\r\nb", "a%2e"]
)
def test_an_argument_in_a_host_is_letters_digits_dots_and_hyphens(text: str) -> None:
    with pytest.raises(ArgumentRefused, match="it stands in a host"):
        UrlTemplate.parse("http://{host}/").fill({"host": text})


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_an_argument_never_leaves_its_place(path: str, value: str) -> None:
    try:
        host, url = UrlTemplate.parse("https://api.example/a/{path}/b?k={value}&z=1").fill(
            {"path": path, "value": value}
        )
    except ArgumentRefused:
        assert path in {"", ".", ".."}
        return
    parts = urlsplit(url)
    assert (host, parts.scheme, parts.netloc, parts.fragment) == ("api.example", "https", "api.example", "")
    assert parts.path.count("/") == 3
    assert parse_qsl(parts.query, keep_blank_values=True) == [("k", value), ("z", "1")]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://h/", "must be an address"),
        ("h/{a}", "must be an address"),
        ("{scheme}://h/", "must be an address"),
        ("http:///{a}", "must be an address"),
        ("http://h/{a", "must be an address"),
        ("http://h/{}", "must be an address"),
        ("http://h/a b", "must be an address"),
        ("http://h:99999/", "must be an address"),
        ("http://[h/", "must be an address"),
        ("http://me:pw@h/", "must have no credentials"),
        ("http://{u}@h/", "must have no credentials"),
        ("http://h/#{a}", "must have no credentials and no fragment"),
        ("http://h:{port}/", "must have no {argument} for the port"),
        ("http://h/?{a}=1", "must have no {argument} for the name of a parameter"),
    ],
)
def test_the_error_of_a_bad_template_names_the_remedy(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        UrlTemplate.parse(url)


def test_more_arguments_become_more_of_the_query() -> None:
    assert with_query("http://h/?a=1", {"b": "x y", "c": None, "d": 2}) == "http://h/?a=1&b=x%20y&d=2"
    assert with_query("http://h/", {"b": 1}) == "http://h/?b=1"
    assert with_query("http://h/", {}) == "http://h/"
