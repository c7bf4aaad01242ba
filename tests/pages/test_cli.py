"""The page of the commands is the one that they make themselves."""

from pathlib import Path

from tests.gateway.cli.test_commands import COMMANDS
from tests.pages.cli import reference

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_says_what_the_commands_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "write it again: make pages"


def test_every_command_has_its_section() -> None:
    sections = [line for line in reference().splitlines() if line.startswith("## ")]
    assert sections[0] == "## a2a-gateway"
    assert [section.split()[2] for section in sections[1:] if len(section.split()) == 3] == list(COMMANDS)
