"""The pages of the clients are those that their catalogue and the examples make."""

from pathlib import Path

from tests.pages.clients import pages

DOCS = Path(__file__).parents[2] / "docs"


def test_the_pages_say_what_the_cookbook_and_the_examples_say() -> None:
    there = {f"clients/{path.name}": path.read_text(encoding="utf-8") for path in (DOCS / "clients").glob("*.md")}
    assert there == pages(), "write them again: make pages"
