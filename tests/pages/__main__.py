"""Writes the pages that are made from the code: `make pages`."""

from pathlib import Path

from tests.pages import cli, clients, configuration, interop

DOCS = Path(__file__).parents[2] / "docs"

(DOCS / "cli.md").write_text(cli.reference(), encoding="utf-8")
(DOCS / "configuration.md").write_text(configuration.reference(), encoding="utf-8")
(DOCS / "interop.md").write_text(interop.reference(), encoding="utf-8")
for name, text in clients.pages().items():
    (DOCS / name).write_text(text, encoding="utf-8")
