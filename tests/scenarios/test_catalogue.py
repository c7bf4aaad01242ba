"""The catalogue of scenarios and the tests name each other."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from tests.scenarios.catalogue import GOLDEN, GOLDEN_NOT_YET, GROUPS, NOT_YET, SCENARIOS

HERE = Path(__file__).parent
NUMBERED = re.compile(r"test_(\d+[a-z]?)_\w+")


def numbered_tests() -> Iterator[tuple[str, str]]:
    """(number, name) of each test, read from the source, so that a module that cannot be imported is not left out."""
    for path in HERE.glob("**/test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found = NUMBERED.fullmatch(node.name)
                if found is not None:
                    yield found[1], f"{path.name}: {node.name}"


def golden_rows() -> set[str]:
    modules = (importlib.import_module(f"tests.scenarios.{path.stem}") for path in HERE.glob("test_*.py"))
    return {row.name for module in modules for row in getattr(module, "ROWS", ()) if hasattr(row, "name")}


def test_every_scenario_of_the_first_release_has_a_test_of_its_number() -> None:
    tested = {number for number, _ in numbered_tests()}
    first = {number for number, scenario in SCENARIOS.items() if scenario.first}
    assert sorted(first - tested - set(NOT_YET)) == []


def test_every_numbered_test_is_of_a_scenario() -> None:
    assert [name for number, name in numbered_tests() if number not in SCENARIOS] == []


def test_a_scenario_that_has_a_test_is_not_among_those_to_come() -> None:
    assert [name for number, name in numbered_tests() if number in NOT_YET] == []
    assert sorted(NOT_YET.keys() - SCENARIOS.keys()) == []
    assert [number for number in NOT_YET if not SCENARIOS[number].first] == []


def test_every_golden_trace_is_a_row_and_every_row_a_golden_trace() -> None:
    assert golden_rows() == set(GOLDEN) - set(GOLDEN_NOT_YET)
    assert sorted(GOLDEN_NOT_YET.keys() - set(GOLDEN)) == []
    assert len(set(GOLDEN)) == len(GOLDEN)


def test_the_numbers_have_no_gaps_and_no_scenario_is_without_a_group() -> None:
    numbers = {int(number.rstrip("bcd")) for number in SCENARIOS}
    assert numbers == set(range(1, 143))
    assert {scenario.group for scenario in SCENARIOS.values()} == set(GROUPS)
    assert len({scenario.title for scenario in SCENARIOS.values()}) == len(SCENARIOS)
