"""The operation of each method. What a request goes through: tests/interaction."""

from typing import Any, cast

from gateway.a2a.wire.v1_0 import METHODS
from gateway.http.pipeline import operation_table
from gateway.operations.service import Operations


class _Named:
    """Every attribute is its own name."""

    def __getattr__(self, name: str) -> Any:
        return name


def test_every_method_has_an_operation_of_its_own() -> None:
    table = operation_table(cast("Operations", _Named()))
    assert set(table) == set(METHODS)
    operations = {name for name in vars(Operations) if not name.startswith("_")}
    assert {str(operation) for operation in table.values()} == operations
    assert len(operations) == 11
