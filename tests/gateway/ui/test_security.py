"""Where a form may come from, and the cookie."""

import pytest

from gateway.ui.security import Cookies, comes_from_elsewhere, is_overheard, stranger

HERE = "https://gateway.example"


def headers(**given: str) -> list[tuple[bytes, bytes]]:
    return [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()]


@pytest.mark.parametrize(
    "given",
    [
        {"host": "gateway.example"},
        {"host": "gateway.example", "origin": "null"},
        {"host": "gateway.example", "origin": "https://evil.example"},
        {"host": "gateway.example", "origin": "https://gateway.example.evil.example"},
        {"host": "gateway.example", "origin": "https://gateway.example:8443"},
        {"host": "gateway.example", "origin": "https://[::1"},
        {"host": "gateway.example", "origin": "https://gateway.example", "sec_fetch_site": "cross-site"},
        {"host": "gateway.example", "origin": "https://gateway.example", "sec_fetch_site": "same-site"},
        {"host": "gateway.example", "origin": "https://gateway.example", "sec_fetch_site": "none"},
        {"origin": "https://gateway.example"},
    ],
    ids=str,
)
def test_a_form_of_another_page_is_a_stranger(given: dict[str, str]) -> None:
    assert stranger(headers(**given), HERE) is not None


@pytest.mark.parametrize(
    "given",
    [
        {"host": "gateway.example", "origin": "https://gateway.example"},
        {"host": "gateway.example:443", "origin": "https://gateway.example", "sec_fetch_site": "same-origin"},
        {"host": "10.0.0.7:8080", "origin": "https://gateway.example"},
        {"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:8080"},
        {"host": "[::1]:8080", "origin": "http://[::1]:8080"},
    ],
    ids=str,
)
def test_a_form_of_a_page_of_this_gateway_is_none(given: dict[str, str]) -> None:
    assert stranger(headers(**given), HERE) is None


def test_two_origins_are_a_stranger() -> None:
    twice = [*headers(host="gateway.example", origin=HERE), *headers(origin=HERE)]
    assert stranger(twice, HERE) is not None


def test_over_https_the_cookie_is_bound_to_its_host() -> None:
    name, value = Cookies(HERE, "1f2e").header("v", 60)
    assert (name, value) == (
        b"set-cookie",
        b"__Host-a2a-gateway-1f2e=v; Path=/; HttpOnly; SameSite=Strict; Max-Age=60; Secure",
    )


def test_over_http_it_is_a_plain_one() -> None:
    value = Cookies("http://127.0.0.1:8080", "1f2e").header("v", 60)[1]
    assert value == b"a2a-gateway-1f2e=v; Path=/; HttpOnly; SameSite=Strict; Max-Age=60"


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        ("", None),
        ("a2a-gateway-1f2e=", None),
        ("other=1; a2a-gateway-1f2e=v", "v"),
        ('broken={"json": [1,2]}; a2a-gateway-1f2e=v; x', "v"),
        ("a2a-gateway-1f2e2=w", None),
    ],
)
def test_the_cookie_is_found_beside_those_of_others(sent: str, found: str | None) -> None:
    assert Cookies("http://localhost", "1f2e").value(headers(cookie=sent)) == found


@pytest.mark.parametrize(
    ("url", "overheard"),
    [("https://gateway.example", False), ("http://127.0.0.1:8080", False), ("http://gateway.example", True)],
)
def test_plain_http_beyond_the_machine_is_overheard(url: str, overheard: bool) -> None:
    assert is_overheard(url) is overheard


def test_a_link_elsewhere_is_told_from_a_script_elsewhere() -> None:
    link = headers(sec_fetch_site="cross-site", sec_fetch_mode="navigate")
    script = headers(sec_fetch_site="cross-site", sec_fetch_mode="cors")
    assert comes_from_elsewhere({"type": "http", "headers": link})
    assert not comes_from_elsewhere({"type": "http", "headers": script})
