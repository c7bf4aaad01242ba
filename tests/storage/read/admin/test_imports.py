"""What the pages read with is loaded with the first page."""

import subprocess
import sys


def test_a_ledger_without_pages_loads_nothing_of_what_they_read() -> None:
    code = "import sys, storage.ledger, storage.postgres.ledger; print(*[name for name in sys.modules if '.admin' in name])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.split() == []
