"""The page of the tested clients is the one that the catalogue of the tests makes."""

from pathlib import Path

from tests.pages.interop import reference

PAGE = Path(__file__).parents[2] / "docs" / "interop.md"


def test_the_page_says_what_the_catalogue_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "write it again: make pages"
