"""Every host of a connection string gets its address and its port."""

import pytest
from psycopg.conninfo import conninfo_to_dict

from storage.postgres.addresses import attempts
from storage.postgres.errors import Lost


@pytest.mark.parametrize(
    ("conninfo", "expected"),
    [
        ("host=127.0.0.1 port=1", [("127.0.0.1", "127.0.0.1", "1")]),
        ("host=127.0.0.1,127.0.0.2 port=1,2", [("127.0.0.1", "127.0.0.1", "1"), ("127.0.0.2", "127.0.0.2", "2")]),
        ("host=127.0.0.1,127.0.0.2 port=1", [("127.0.0.1", "127.0.0.1", "1"), ("127.0.0.2", "127.0.0.2", "1")]),
        ("host=127.0.0.1,127.0.0.2", [("127.0.0.1", "127.0.0.1", None), ("127.0.0.2", "127.0.0.2", None)]),
        (
            "postgresql://127.0.0.1,127.0.0.2/a?port=1",
            [("127.0.0.1", "127.0.0.1", "1"), ("127.0.0.2", "127.0.0.2", "1")],
        ),
        ("hostaddr=127.0.0.1,127.0.0.2 port=1", [(None, "127.0.0.1", "1"), (None, "127.0.0.2", "1")]),
        ("host=one,two hostaddr=127.0.0.1,127.0.0.2", [("one", "127.0.0.1", None), ("two", "127.0.0.2", None)]),
        ("host=/run/postgresql port=1", [("/run/postgresql", None, "1")]),
        ("dbname=a", [(None, None, None)]),
    ],
)
def test_hosts_are_tried_in_their_order(conninfo: str, expected: list[tuple[str | None, ...]]) -> None:
    found = [conninfo_to_dict(each.decode()) for each in attempts(conninfo)]
    assert [(one.get("host"), one.get("hostaddr"), one.get("port")) for one in found] == expected


def test_a_host_without_an_address_is_passed_over() -> None:
    [found] = attempts("host=nobody.invalid,127.0.0.1 port=1")
    assert conninfo_to_dict(found.decode())["host"] == "127.0.0.1"


def test_hosts_without_any_address_are_named() -> None:
    with pytest.raises(Lost, match=r"nobody\.invalid"):
        attempts("host=nobody.invalid")
