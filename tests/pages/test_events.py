"""Every event of the log is on the page of operations."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[2]
_EVENT = re.compile(r"[a-z]+(?:\.[a-z][a-z-]*)?")


def events() -> set[str]:
    """What is logged, by the first argument of each call of a logger."""
    files = (path for package in ("gateway", "adapters", "storage") for path in (PROJECT / package).rglob("*.py"))
    return {event for path in files for event in _logged(ast.parse(path.read_text(encoding="utf-8")))}


def _logged(module: ast.Module) -> Iterator[str]:
    for call in ast.walk(module):
        match call:
            case ast.Call(func=ast.Attribute() | ast.IfExp() as logger, args=[event, *_]) if _is_of_a_log(logger):
                yield from (each for each in _texts(event) if _EVENT.fullmatch(each))


def _is_of_a_log(logger: ast.expr) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "log" for each in ast.walk(logger))


def _texts(event: ast.expr) -> Iterator[str]:
    match event:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=first, orelse=second):
            yield from _texts(first)
            yield from _texts(second)


def test_every_event_of_the_log_is_explained() -> None:
    page = (PROJECT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert [event for event in sorted(events()) if f"`{event}`" not in page] == []
