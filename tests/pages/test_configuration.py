"""The page of the configuration is the one that the schema makes."""

from pathlib import Path

from gateway.config.gateway import GatewaySections
from gateway.config.plugins import Registry
from tests.pages.configuration import reference

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_says_what_the_schema_says() -> None:
    remedy = "write it again: make pages"
    assert PAGE.read_text(encoding="utf-8") == reference(), remedy


def test_every_section_and_every_type_has_its_table() -> None:
    headings = [line for line in reference().splitlines() if line.startswith("#")]
    sections = [name for name in GatewaySections.model_fields if name != "version"]
    kinds = [f"### url: {name}" for name in Registry().known("storage")]
    assert headings == [
        "# Configuration",
        "## The file",
        *(line for name in sections for line in (f"## {name}", *(kinds if name == "storage" else ()))),
        "## tools",
        *(f"### type: {name}" for name in Registry().known("tools")),
        "## agents",
        *(f"### type: {name}" for name in Registry().known("agents")),
    ]


def test_a_row_says_what_to_write_what_it_is_otherwise_and_why() -> None:
    rows = set(reference().splitlines())
    types = ", ".join(f"`{name}`" for name in Registry().known("agents"))
    for row in (
        "| `shutdown_grace` | duration | `30s` | How long running turns may take to end after SIGTERM. |",
        "| `port` | whole number, 0 to 65535 | `8080` | Port to listen on; 0 lets the system choose one. |",
        f"| `type` | {types} | required | Kind of backend: the name of an adapter. |",
        "| `request_body` | size, from 1KiB | `8MiB` | Largest request body, files included. |",
        "| `statement_timeout` | duration, 100ms to 1h | `30s` | Longest time of a statement. |",
        "| `card.skills[].tags` | list of text | required | Keywords, at least one. |",
        "| `api_key` | secret |  | Sent as a bearer token; none is sent when it is not given. |",
        "| `instructions` | text or `{file: path}` |  | What the model is told before every conversation. |",
    ):
        assert row in rows
