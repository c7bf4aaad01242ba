"""What the system tells of this process, as Prometheus names it. A value that the system does not tell is left out.

Source: Prometheus, "Writing client libraries", process metrics.
"""

import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gateway.telemetry.cells import Counted, Gauge

_STARTED = time.time()
_PAGE = resource.getpagesize()
_STATM, _DESCRIPTORS = Path("/proc/self/statm"), Path("/proc/self/fd")


def process_metrics() -> tuple[Counted | Gauge, ...]:
    return (
        Counted("process_cpu_seconds_total", "CPU time of the process.", lambda: [((), time.process_time())]),
        Gauge(
            "process_start_time_seconds", "When the process started, in seconds since 1970.", lambda: [((), _STARTED)]
        ),
        Gauge("process_resident_memory_bytes", "Memory of the process that is not swapped out.", _resident),
        Gauge("process_virtual_memory_bytes", "Addresses that the process has taken.", _virtual),
        Gauge("process_open_fds", "Open descriptors.", _descriptors),
        Gauge("process_max_fds", "The most descriptors that may be open.", _most_descriptors),
    )


def _resident() -> Iterator[tuple[tuple[str, ...], float]]:
    yield from _pages(1)


def _virtual() -> Iterator[tuple[tuple[str, ...], float]]:
    yield from _pages(0)


def _pages(column: int) -> Iterator[tuple[tuple[str, ...], float]]:
    with suppress(OSError, ValueError, IndexError):
        yield (), int(_STATM.read_text().split()[column]) * _PAGE


def _descriptors() -> Iterator[tuple[tuple[str, ...], float]]:
    with suppress(OSError):
        yield (), sum(1 for _ in _DESCRIPTORS.iterdir())


def _most_descriptors() -> Iterator[tuple[tuple[str, ...], float]]:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        yield (), most
