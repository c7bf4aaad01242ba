"""The cores that this process may use."""

import os
import sys


def usable_cores() -> int:
    """At least 1. Those of its affinity; from Python 3.13 on, PYTHON_CPU_COUNT and `-X cpu_count` count before. A quota of CPU
    time (`cpu.max` of a cgroup) is not one of cores, and counts nowhere."""
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
