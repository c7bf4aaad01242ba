"""The secrets of a stored configuration."""

import pytest

from gateway.foundation.sealing import UnreadableSecret
from gateway.push.secrets import SecretBox, Secrets

KEY = b"k" * 32
SECRETS = Secrets("token-canary", "credentials-canary")
PLACE = "https://hook.example/"


def test_a_sealed_secret_can_be_opened_with_the_same_key_for_the_same_address() -> None:
    sealed = SecretBox(KEY).seal(SECRETS, PLACE)
    assert SecretBox(KEY).open(sealed, PLACE) == SECRETS


def test_sealed_secrets_show_nothing_and_no_two_are_the_same() -> None:
    box = SecretBox(KEY)
    first, second = box.seal(SECRETS, PLACE), box.seal(SECRETS, PLACE)
    assert first != second
    assert b"canary" not in first + second


def test_a_sealed_secret_cannot_be_opened_for_another_address() -> None:
    sealed = SecretBox(KEY).seal(SECRETS, PLACE)
    with pytest.raises(UnreadableSecret, match="not what was sealed for this place"):
        SecretBox(KEY).open(sealed, "https://evil.example/")


def test_another_key_is_recognised() -> None:
    sealed = SecretBox(KEY).seal(SECRETS, PLACE)
    with pytest.raises(UnreadableSecret, match="sealed with another key"):
        SecretBox(b"other" * 8).open(sealed, PLACE)


@pytest.mark.parametrize("cut", [0, 1, 5, 16, 20])
def test_a_truncated_or_changed_secret_is_not_opened(cut: int) -> None:
    sealed = SecretBox(KEY).seal(SECRETS, PLACE)
    with pytest.raises(UnreadableSecret):
        SecretBox(KEY).open(sealed[:cut], PLACE)
    changed = bytearray(sealed)
    changed[-1 - cut] ^= 1
    with pytest.raises(UnreadableSecret):
        SecretBox(KEY).open(bytes(changed), PLACE)
