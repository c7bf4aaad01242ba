"""Packages that a start does not import."""

import subprocess
import sys

import pytest

from gateway.cli.commands import hidden

_START = """
import sys
from gateway.cli.commands import hidden
with hidden("rich"):
    import gateway.cli.serve.serve
assert "structlog" in sys.modules
assert not [name for name in sys.modules if name.partition(".")[0] == "rich"]
import rich.console
"""


def test_a_server_starts_without_rich_which_others_may_load_later() -> None:
    done = subprocess.run([sys.executable, "-c", _START], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_server_starts_without_jsonschema() -> None:
    start = "import sys, gateway.cli.serve.serve; assert 'jsonschema' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_hidden_package_counts_as_not_installed() -> None:
    sys.modules.pop("this", None)
    with hidden("this"), pytest.raises(ImportError):
        __import__("this")
    assert "this" not in sys.modules


def test_a_loaded_package_stays_loaded() -> None:
    with hidden("json"):
        import json
    assert json is sys.modules["json"]
