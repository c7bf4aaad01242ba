"""Sealed values: keys for one purpose each."""

import pytest

from gateway.foundation.sealing import Seal, UnreadableSecret, derive_key

KEY = b"k" * 32


def test_what_was_sealed_for_one_purpose_cannot_be_opened_for_another() -> None:
    sealed = Seal(KEY, b"one", b"one id").close(b"canary", "here")
    assert b"canary" not in sealed
    for other in (Seal(KEY, b"two", b"one id"), Seal(KEY, b"one", b"two id"), Seal(b"o" * 32, b"one", b"one id")):
        with pytest.raises(UnreadableSecret):
            other.open(sealed, "here")
    assert Seal(KEY, b"one", b"one id").open(sealed, "here") == b"canary"


def test_keys_for_different_purposes_have_nothing_in_common() -> None:
    assert derive_key(KEY, b"one", 32) != derive_key(KEY, b"other", 32)
    assert derive_key(KEY, b"one", 32) == derive_key(KEY, b"one", 32)
