"""Pages as HTML. Law: templates escape everything; what is marked as HTML beside them comes from `foreign`."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gateway.core.failures import cause
from gateway.foundation.clock import timestamp
from gateway.ui import words
from gateway.ui.foreign import foreign, plain, short
from gateway.ui.static import address

_FOLDER = Path(__file__).parent / "templates"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals |= {"static": address, "state": words.state, "many": words.many, "cause": cause}
    made.filters |= {
        "foreign": foreign,
        "plain": plain,
        "short": short,
        "clock": _clock,
        "moment": timestamp,
        "took": words.took,
        "count": lambda number: f"{number:,}",
        "size": words.size,
        "pretty": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    }
    return made


def render(template: str, values: Mapping[str, object]) -> bytes:
    """Raises: UndefinedError where a template wants what the page does not give."""
    return _environment().get_template(template).render(values).encode("utf-8", "replace")


def render_rows(rows: Iterable[Any], view: object) -> dict[str, str]:
    """The rows of a timeline by their ids."""
    environment = _environment()
    row, parts = environment.get_template("rows.html").module, environment.get_template("parts.html").module
    return {each.id: str(row.row(each, view, parts)).strip() for each in rows}  # type: ignore[attr-defined]


def render_state(name: str) -> str:
    return str(_environment().get_template("parts.html").module.mark(name))  # type: ignore[attr-defined]


def render_around(view: object, principal: str) -> dict[str, str]:
    """What stands around the rows of a timeline and changes with them, by its ids, for this principal."""
    environment = _environment()
    live, parts = environment.get_template("live.html").module, environment.get_template("parts.html").module
    made = {
        "head": live.head(view, principal, parts),  # type: ignore[attr-defined]
        "span": live.span(view),  # type: ignore[attr-defined]
        "more": live.more(view),  # type: ignore[attr-defined]
    }
    return {name: str(html).strip() for name, html in made.items()}


def _clock(milliseconds: int) -> str:
    """UTC, as people read it."""
    return timestamp(milliseconds)[:19].replace("T", " ")
