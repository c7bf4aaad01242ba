"""The catalogue of faults and the tests name each other."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.faults.catalogue import CATALOGUE, NOT_BUILT

HERE = Path(__file__).parent
TESTS = HERE.parent
_DEFINED = re.compile(r"^ *(?:async )?def (test_\w+)\(", re.MULTILINE)
_SERIES = {
    "K": range(1, 15),
    "B": range(1, 16),
    "D": range(1, 9),
    "M": [1],
    "T": [1],
    "C": [1, 2, 3],
    "W": [1],
    "P": [1, 2, 3, 4],
    "R": [1, 2],
}


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def _rows_of(marks: ast.AST) -> Iterator[str]:
    """What the marks among these expressions name, read from the source."""
    for node in ast.walk(marks):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault":
            yield from (ast.literal_eval(argument) for argument in node.args)


@cache
def marked() -> tuple[tuple[str, str], ...]:
    """(row, test) of each mark in this folder."""
    return tuple(_marked())


def _marked() -> Iterator[tuple[str, str]]:
    for path in sorted(HERE.glob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
                yield from ((row, f"{path.name}: all of it") for row in _rows_of(node.value))
        for function in _functions(path):
            for decorator in function.decorator_list:
                yield from ((row, f"{path.name}: {function.name}") for row in _rows_of(decorator))


def test_every_fault_has_a_test_that_shows_what_becomes_of_it() -> None:
    shown = {row for row, _ in marked()} | {row for row, fault in CATALOGUE.items() if fault.tests}
    assert sorted(CATALOGUE.keys() - shown) == []


def test_every_mark_names_a_fault_that_can_happen() -> None:
    assert [test for row, test in marked() if row not in CATALOGUE] == []


def test_every_test_that_the_catalogue_names_exists() -> None:
    named = {name for fault in CATALOGUE.values() for name in fault.tests}
    sources = [path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py") if path.parent != HERE]
    assert sorted(named.difference(*map(_DEFINED.findall, sources))) == []


def test_no_fault_is_missing_and_none_is_both_shown_and_put_off() -> None:
    assert CATALOGUE.keys() | NOT_BUILT.keys() == {
        f"{kind}{number}" for kind, many in _SERIES.items() for number in many
    }
    assert CATALOGUE.keys() & NOT_BUILT.keys() == set()
    assert all(re.search(r"there is no ", reason) for reason in NOT_BUILT.values())
    assert len({fault.title for fault in CATALOGUE.values()}) == len(CATALOGUE)
