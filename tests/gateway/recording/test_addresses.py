"""Addresses and forms: a password or parameter is masked, and nothing beside it."""

from urllib.parse import quote, unquote

import pytest

from gateway.recording import addresses
from gateway.recording.masks import Masks, Secrets

ADDRESSES = [
    ("https://u:a@b@h/x@y", "https://u:[redacted]@h/x@y"),
    ("https://u@corp:a:b@h?x=1@2", "https://u@corp:[redacted]@h?x=1@2"),
    ("redis://:pw@r:6379", "redis://:[redacted]@r:6379"),
    ("https://h:80/x#me@there", "https://h:80/x#me@there"),
    ("https://h/x#access_token=abc&a=1", "https://h/x#access_token=[redacted]&a=1"),
    ("https://h/x?a=1#token=abc", "https://h/x?a=1#token=[redacted]"),
    ("https://h/x?token=abc#top", "https://h/x?token=[redacted]#top"),
    ("https://h/x?p%61ssword=abc&x=1", "https://h/x?p%61ssword=[redacted]&x=1"),
    ("https://h/x?api%20key=abc&api+key=abc", "https://h/x?api%20key=[redacted]&api+key=[redacted]"),
    ("https://h/x?PASS-WORD=abc", "https://h/x?PASS-WORD=[redacted]"),
    ("https://h/x?a=1;password=abc", "https://h/x?a=1;password=[redacted]"),
    ("jdbc:sqlserver://h;user=x;password=a;b;size=1", "jdbc:sqlserver://h;user=x;password=[redacted];size=1"),
    ("https://h/x?user[password]=abc&user[name]=n", "https://h/x?user[password]=[redacted]&user[name]=n"),
    ("https://h/x?password[]=abc&password[0]=abc", "https://h/x?password[]=[redacted]&password[0]=[redacted]"),
    ("https://h/x?user%5Bpassword%5D=abc", "https://h/x?user%5Bpassword%5D=[redacted]"),
    ("https://h/x?to=https://i/?token=abc&z=1", "https://h/x?to=https://i/?token=[redacted]&z=1"),
    ("https://h/x?password=&max_tokens=5", "https://h/x?password=&max_tokens=5"),
]


@pytest.mark.parametrize(("text", "masked"), ADDRESSES)
def test_what_an_address_has_of_a_secret_is_masked(text: str, masked: str) -> None:
    masks = Masks(Secrets())
    assert masks.url(text) == masks.text(text) == masked
    assert masks.url(masked) == masks.text(masked) == masked
    assert masks.text(f"See <{text}> or '{text}' here") == f"See <{masked}> or '{masked}' here"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("password=abc&user=x", "password=[redacted]&user=x"),
        ("user=x&password=abc", "user=x&password=[redacted]"),
        ("user[password]=abc", "user[password]=[redacted]"),
        ("password=abc is what one writes", "password=abc is what one writes"),
    ],
)
def test_the_first_parameter_of_a_form_is_one_too(text: str, masked: str) -> None:
    masks = Masks(Secrets())
    assert masks.text(text) == masked
    assert masks.body(text.encode()) == masked
    assert masks.text(masked) == masked


@pytest.mark.parametrize("inner", ["https://i/?x=1&token=abc", "https://u:abc@i/", 'a {"password": "abc"} b'])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_an_address_in_the_parameter_of_another_is_masked(inner: str, times: int) -> None:
    masks, text = Masks(Secrets()), inner
    for _ in range(times):
        text = f"https://h/x?y=1&to={quote(text, safe='')}&z=2"
    for masked in (masks.text(text), masks.url(text), masks.text(f"see {text} there")):
        assert "abc" not in masked
        assert "z=2" in masked
        assert masks.text(masked) == masked


def test_a_parameter_without_a_secret_keeps_its_encoding() -> None:
    text = "https://h/x?to=https%3a%2f%2Fi%2F%3Fpage_token%3Dabc~"
    assert Masks(Secrets()).text(text) == Masks(Secrets()).url(text) == text


@pytest.mark.parametrize("times", [2, 3, 4])
def test_an_address_that_is_encoded_more_than_once_is_masked(times: int) -> None:
    masks, text = Masks(Secrets()), "https://i/?token=abc"
    for _ in range(times):
        text = quote(text)
    masked = masks.text(f"https://h/?a={text}&b=1")
    assert "abc" not in masked
    assert masked.endswith("&b=1")
    assert masks.text(masked) == masked == masks.url(masked)


def test_addresses_in_one_another_without_a_secret_stay() -> None:
    text = "https://i/?page_token=abc"
    for _ in range(7):
        text = f"https://h/x?to={quote(text, safe='')}"
    assert Masks(Secrets()).text(text) == text


def test_what_many_parameters_in_one_another_hold_is_read_a_few_times() -> None:
    text = "https://h/" + "?b=%2541" * 1000
    read = 0

    def inner(value: str) -> str:
        nonlocal read
        read += len(value)
        return value

    assert addresses.masked(text, lambda name: name == "token", lambda: "*", inner) == text
    assert read < 20 * len(text)


@pytest.mark.parametrize("before", [0, 1, 3, 4, 20])
def test_a_secret_behind_parameters_in_one_another_is_masked(before: int) -> None:
    masks, within = Masks(Secrets()), "?a=x" * before
    for secret, masked in [
        ("?token=abc", "?token=[redacted]"),
        ("?b=%3Ftoken%3Dabc", "?b=?token=[redacted]"),
        ("?token=abc?x=1", "?token=[redacted]"),
    ]:
        assert unquote(masks.text(f"https://h/{within}{secret}&z=1")) == f"https://h/{within}{masked}&z=1"
