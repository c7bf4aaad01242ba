"""Parsing of the headers and the query of a request. Their effect for callers: tests/interaction."""

import pytest

from gateway.a2a.errors import InvalidParams, UnsupportedMediaType
from gateway.a2a.limits import Limits
from gateway.http.headers import ServiceParameters, query, refuse_media_type, wants_a2a_json
from tests.interaction.asgi import scope_of


def parameters(*headers: tuple[str, str], target: str = "/") -> ServiceParameters:
    scope = scope_of("GET", target, headers)
    return ServiceParameters.of(scope["headers"], scope["query_string"])


def test_a_request_without_them_has_none() -> None:
    none = parameters()

    assert (none.version(), none.extensions(Limits()), none.idempotency_key(Limits()), none.last_event_id()) == (
        None,
        (),
        None,
        None,
    )


@pytest.mark.parametrize(
    ("target", "version"),
    [
        ("/?a2a-VERSION=1.0", "1.0"),
        ("/?version=1.0", None),
        ("/?A2A-Version=", ""),
        ("/?A2A-Version=1.0&a2a-version=+1.0", "1.0"),
    ],
)
def test_the_version_is_a_request_parameter_where_no_header_names_it(target: str, version: str | None) -> None:
    assert parameters(target=target).version() == version


@pytest.mark.parametrize("text", ["{} ", "{}\t", " {}", "\t {} \t"])
def test_spaces_and_tabs_around_a_value_are_not_part_of_it(text: str) -> None:
    given = {"A2A-Version": "1.0", "A2A-Extensions": "a", "Idempotency-Key": "k", "Last-Event-ID": "1"}

    found = parameters(*((name, text.format(value)) for name, value in given.items()))

    assert (found.version(), found.extensions(Limits()), found.idempotency_key(Limits()), found.last_event_id()) == (
        "1.0",
        ("a",),
        "k",
        1,
    )


def test_extensions_are_listed_once_in_the_order_of_the_request() -> None:
    found = parameters(("A2A-Extensions", "b, a,,b"), ("A2A-Extensions", " c ,a"))

    assert found.extensions(Limits()) == ("b", "a", "c")


def test_an_empty_last_event_id_is_none() -> None:
    assert parameters(("Last-Event-ID", "")).last_event_id() is None


def test_the_same_value_twice_is_one_value() -> None:
    assert parameters(("Idempotency-Key", "k"), ("Idempotency-Key", "k ")).idempotency_key(Limits()) == "k"
    assert parameters(("A2A-Version", "1.0"), ("A2A-Version", " 1.0")).version() == "1.0"
    assert parameters(("Last-Event-ID", "1"), ("Last-Event-ID", "1")).last_event_id() == 1


def test_a_query_is_decoded_once() -> None:
    assert query(b"a=%2541&b=c+d&e") == [("a", "%41"), ("b", "c d"), ("e", "")]


@pytest.mark.parametrize("text", ["a=%FF", "a=%00", "&".join(["a=1"] * 101)])
def test_a_query_that_cannot_be_stored_is_refused(text: str) -> None:
    with pytest.raises(InvalidParams):
        query(text.encode())


@pytest.mark.parametrize(
    "header",
    [
        ("Content-Type", "application/json"),
        ("Content-Type", 'application/a2a+json; charset="UTF-8"; profile=x'),
        ("Content-Type", ""),
        ("Content-Encoding", "identity"),
        ("Content-Encoding", ""),
    ],
)
def test_plain_json_is_read(header: tuple[str, str]) -> None:
    refuse_media_type(scope_of("POST", "/", [header]))


@pytest.mark.parametrize(
    "header",
    [
        ("Content-Type", "application/jsonp"),
        ("Content-Type", "application/json; charset=utf-16"),
        ("Content-Encoding", "deflate"),
    ],
)
def test_anything_else_is_refused(header: tuple[str, str]) -> None:
    with pytest.raises(UnsupportedMediaType):
        refuse_media_type(scope_of("POST", "/", [header]))


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (("Accept", "text/event-stream, application/A2A+json;q=0.9"), True),
        (("Content-Type", "application/a2a+json"), True),
        (("Accept", "application/json"), False),
        (("X-Other", "application/a2a+json"), False),
    ],
)
def test_the_a2a_type_is_for_clients_that_name_it(header: tuple[str, str], wanted: bool) -> None:
    assert wants_a2a_json(scope_of("GET", "/", [header])) is wanted
