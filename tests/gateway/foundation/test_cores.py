"""The cores that may be used."""

import os
import subprocess
import sys

import pytest

from gateway.foundation.cores import usable_cores

_ON_ONE = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
_COUNT = "from gateway.foundation.cores import usable_cores; print(usable_cores())"


def test_there_is_at_least_one() -> None:
    assert usable_cores() >= 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_a_process_that_may_use_one_core_has_one() -> None:
    done = subprocess.run([sys.executable, "-c", _ON_ONE + _COUNT], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
