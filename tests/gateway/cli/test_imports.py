"""What a start leaves out: packages, adapters, collections."""

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


_FAMILIES = """
import sys
from gateway.cli.main import run
code = run({arguments!r})
print(code, *sorted(name for name in sys.modules if name.startswith("adapters.") and name.endswith(("adapter", "function"))))
"""


@pytest.mark.parametrize(
    ("arguments", "code", "adapters"),
    [
        (["serve", "--help"], 0, []),
        (["serve", "ollama:llama3.3", "--host", "0.0.0.0"], 78, ["adapters.openai.chat.adapter"]),
        (["serve", "nonsense:x"], 2, []),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else str(value),
)
def test_help_needs_no_adapter_and_a_target_its_own(arguments: list[str], code: int, adapters: list[str]) -> None:
    start = [sys.executable, "-c", _FAMILIES.format(arguments=arguments)]
    done = subprocess.run(start, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1].split() == [str(code), *adapters]


_COLLECTIONS = """
import gc, os, sys
import a2a_gateway
sys.argv = ["a2a-gateway", "serve", "-c", "none.yaml"]
gc.collect()
gc.callbacks.append(lambda phase, _: os.write(2, f"{phase} ".encode()))
a2a_gateway.main()
"""


def test_a_start_collects_no_garbage() -> None:
    done = subprocess.run([sys.executable, "-c", _COLLECTIONS], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.partition(":")[0]) == (78, "none.yaml")


def test_a_hidden_package_counts_as_not_installed() -> None:
    sys.modules.pop("this", None)
    with hidden("this"), pytest.raises(ImportError):
        __import__("this")
    assert "this" not in sys.modules


def test_a_loaded_package_stays_loaded() -> None:
    with hidden("json"):
        import json
    assert json is sys.modules["json"]
