"""The page on writing an adapter: its example is whole, short, passes the suite as a package of its own, and is in step."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from gateway.ports.adapter import AdapterFactory

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "echo_adapter"
PAGE = ROOT / "docs" / "adapters.md"


@pytest.mark.parametrize("name", ["pyproject.toml", "echo_adapter.py", "echo_targets.py", "test_echo_adapter.py"])
def test_the_page_shows_each_file_of_the_example_as_it_is(name: str) -> None:
    language = "toml" if name.endswith(".toml") else "python"
    assert f"```{language}\n{(EXAMPLE / name).read_text()}```\n" in PAGE.read_text()


def test_the_example_is_an_adapter_in_less_than_120_lines() -> None:
    assert len((EXAMPLE / "echo_adapter.py").read_text().splitlines()) < 120


def test_the_entry_point_of_the_example_names_a_factory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLE)
    monkeypatch.setitem(sys.modules, "echo_adapter", None)  # so that it is taken out again
    monkeypatch.delitem(sys.modules, "echo_adapter")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    [(name, value)] = project["entry-points"]["a2a_gateway.adapters"].items()
    assert isinstance(EntryPoint(name, value, "a2a_gateway.adapters").load(), AdapterFactory)


@pytest.mark.parametrize("name", ["echo_adapter", "dify_adapter"])
def test_the_examples_pass_the_suite_as_packages_of_their_own(name: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV_"))}
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-c", "pyproject.toml"]
    done = subprocess.run(
        command, cwd=ROOT / "examples" / name, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
