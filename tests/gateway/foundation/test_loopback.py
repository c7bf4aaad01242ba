"""Who can reach an address: this machine alone, or others too."""

import pytest

from gateway.foundation.addresses import is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_these_are_this_machine_alone(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.example", ""])
def test_these_may_be_others(host: str) -> None:
    assert not is_loopback(host)
