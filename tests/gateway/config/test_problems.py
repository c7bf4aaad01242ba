"""What problems show of the values that they are about."""

import pytest

from gateway.config.problems import display, shown_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:secret@host/db", "postgresql://***@host/db"),
        ("postgresql://ada:se@cret@host/db", "postgresql://***@host/db"),
        ("postgresql://ada:se/c?re#t@host/db", "postgresql://***@host/db"),
        ("postgresql:/ada:secret@host/db", "postgresql:/***@host/db"),
        ("postgresql:ada:secret@host/db", "postgresql:***@host/db"),
        ("postgres:///ada:secret@host/db", "postgres:///***@host/db"),
        ("postgresql://host/db?sslpassword=secret&a=b", "postgresql://host/db?sslpassword=***&a=b"),
        ("sqlite:////srv/gateway@1/gateway.db", "sqlite:////srv/gateway@1/gateway.db"),
        ("temporary", "temporary"),
    ],
)
def test_a_url_is_shown_without_credentials_also_where_it_is_mistyped(url: str, shown: str) -> None:
    assert shown_url(url) == shown
    assert display(url) == repr(shown)
