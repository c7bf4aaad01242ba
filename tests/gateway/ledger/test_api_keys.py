"""The form of keys, and when a key is in force."""

import pytest
from msgspec.structs import replace

from gateway.ledger.api_keys import MARK, ApiKey, digest_of, has_form, new_key, shown

KEY = ApiKey(b"d", "bot", "a2agw_abcdef", "ada", "", admin=False, created_at=1000)


def test_every_key_is_another_and_can_be_recognised() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(key.startswith(MARK) and has_form(key) and len(key) == 49 for key in keys)


def test_the_digest_is_that_of_the_whole_key() -> None:
    key = new_key()
    assert digest_of(key) != digest_of(key[:-1])
    assert digest_of(key) != digest_of(key + "x")
    assert len(digest_of(key)) == 32


@pytest.mark.parametrize("text", ["", "hunter2", "a2agw_", "a2agw_short", "sk-" + "x" * 46, "a2agw_" + "ü" * 43])
def test_of_what_is_no_key_nothing_is_shown(text: str) -> None:
    assert not has_form(text)
    assert shown(text) == ""


def test_of_a_key_its_beginning_is_shown() -> None:
    key = new_key()
    assert shown(key) == key[:12]


def test_a_key_counts_until_it_expires_or_is_revoked() -> None:
    assert KEY.fault(10**15) is None
    assert replace(KEY, expires_at=2000).fault(1999) is None
    assert replace(KEY, expires_at=2000).fault(2000) == "expired"
    assert replace(KEY, expires_at=2000, revoked_at=1500).fault(2000) == "revoked"
