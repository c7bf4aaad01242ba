"""The templates and the static files: what they may not do."""

import re
from pathlib import Path

import pytest

import gateway.ui
from gateway.ui.addresses import _PAGES

FOLDER = Path(gateway.ui.__file__).parent
TEMPLATES = sorted((FOLDER / "templates").glob("*.html"))
SCRIPTS = sorted((FOLDER / "static").glob("*.js"))
MODULES = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_marks_nothing_as_html(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"\|\s*safe\b|autoescape|style=|\son[a-z]+=|javascript:|<script(?![^>]*src=)", text) == []


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_loads_nothing_from_elsewhere(path: Path) -> None:
    assert re.findall(r"(?:src|href|action)=\"(?:https?:)?//", path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_only_one_module_makes_html(path: Path) -> None:
    assert ("Markup" in path.read_text(encoding="utf-8")) is (path.name == "foreign.py")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_only_one_script_parses_html_and_none_runs_text(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"\beval\b|new Function|outerHTML|insertAdjacentHTML|document\.write|setTimeout\(\"", text) == []
    assert ("innerHTML" in text) is (path.name == "live.js")


def test_the_style_is_small_and_the_scripts_are() -> None:
    lines = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in (FOLDER / "static").iterdir()}
    assert lines["pages.css"] <= 250
    assert lines["playground.js"] <= 450
    assert sum(lines.values()) <= 1000


def test_what_changes_anything_is_a_form_and_no_other_page_is_open_to_all() -> None:
    assert {path for path, address in _PAGES.items() if address.open} == {("ui",), ("ui", "login")}
