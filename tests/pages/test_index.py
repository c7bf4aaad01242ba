"""Every page of the documentation is in the table of contents of the site, and what that names is there."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_TABLE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def contents() -> dict[str, set[Path]]:
    """The entries of docs/index.md and the pages that each leads to; an entry may be a pattern."""
    tables = _TABLE.findall((DOCS / "index.md").read_text(encoding="utf-8"))
    entries = [line for table in tables for line in table.splitlines() if line and not line.startswith(":")]
    return {entry: {path.resolve() for path in DOCS.glob(f"{entry}.md")} for entry in entries}


def test_every_page_is_in_the_table_of_contents() -> None:
    pages = set(DOCS.rglob("*.md")) - {DOCS / "index.md"}
    assert sorted(pages.difference(*contents().values())) == []


def test_every_entry_of_the_table_of_contents_is_a_page() -> None:
    assert [entry for entry, pages in contents().items() if not pages] == []
