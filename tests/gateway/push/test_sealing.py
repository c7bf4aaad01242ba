"""What is secret of a configuration at rest."""

import pytest

from gateway.push.secrets import Seal, Secrets, Unreadable, derived

KEY = b"k" * 32
SECRETS = Secrets("token-canary", "credentials-canary")
PLACE = "https://hook.example/"


def test_what_was_sealed_can_be_opened_with_the_same_key_for_the_same_place() -> None:
    sealed = Seal(KEY).close(SECRETS, PLACE)
    assert Seal(KEY).open(sealed, PLACE) == SECRETS


def test_nothing_of_it_can_be_read_without_opening_and_no_two_are_the_same() -> None:
    seal = Seal(KEY)
    first, second = seal.close(SECRETS, PLACE), seal.close(SECRETS, PLACE)
    assert first != second
    assert b"canary" not in first + second


def test_beside_another_address_it_stays_closed() -> None:
    sealed = Seal(KEY).close(SECRETS, PLACE)
    with pytest.raises(Unreadable, match="not what was sealed for this place"):
        Seal(KEY).open(sealed, "https://evil.example/")


def test_another_key_is_noticed_as_such() -> None:
    sealed = Seal(KEY).close(SECRETS, PLACE)
    with pytest.raises(Unreadable, match="sealed with another key"):
        Seal(b"other" * 8).open(sealed, PLACE)


@pytest.mark.parametrize("cut", [0, 1, 5, 16, 20])
def test_what_was_cut_short_or_changed_is_not_opened(cut: int) -> None:
    sealed = Seal(KEY).close(SECRETS, PLACE)
    with pytest.raises(Unreadable):
        Seal(KEY).open(sealed[:cut], PLACE)
    changed = bytearray(sealed)
    changed[-1 - cut] ^= 1
    with pytest.raises(Unreadable):
        Seal(KEY).open(bytes(changed), PLACE)


def test_keys_for_different_purposes_have_nothing_in_common() -> None:
    assert derived(KEY, b"one", 32) != derived(KEY, b"other", 32)
    assert derived(KEY, b"one", 32) == derived(KEY, b"one", 32)
