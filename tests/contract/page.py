"""The table of the contract matrix in docs/backends/README.md, which the tests of this folder read: a cell that is not what
they see fails. `make contract` writes what they see."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.contract.backends import ROWS
from tests.contract.situations import SITUATIONS

PAGE = Path(__file__).parents[2] / "docs" / "backends" / "README.md"
BEGIN, END = "<!-- contract: begin -->\n", "<!-- contract: end -->\n"

Cells = Mapping[tuple[str, str], str]


def cells() -> Cells:
    """The cells of the page by row and column."""
    lines = _table().splitlines()
    head = _split(lines[0])[1:]
    rows = [_split(line) for line in lines[2:]]
    return {(name, column): cell for name, *found in rows for column, cell in zip(head, found, strict=True)}


def write(found: Cells) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    PAGE.write_text(before + "".join(f"{line}\n" for line in _lines(found)) + after, encoding="utf-8")


def _lines(found: Cells) -> Iterator[str]:
    yield f"| | {' | '.join(SITUATIONS)} |"
    yield f"|---|{'---|' * len(SITUATIONS)}"
    for row in ROWS:
        yield f"| {row.name} | {' | '.join(found.get((row.name, column), '?') for column in SITUATIONS)} |"


def _table() -> str:
    text = PAGE.read_text(encoding="utf-8")
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)]


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
