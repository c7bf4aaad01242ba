#!/usr/bin/env python3
"""`a2a-gateway` for a soak: things live for seconds instead of days, and what only the process itself knows is written down.

    SOAK_RETENTION   seconds: between sweeps, and the lives of events, tasks and idle contexts, as 60,120,240,360
    SOAK_INSIDE      a file that gets a JSON line every SOAK_EVERY seconds: asyncio tasks, memory blocks, what malloc holds
    SOAK_TRACE       frames that tracemalloc keeps of each allocation; then every third line also says what has grown since
                     SOAK_SETTLE seconds. Memory and CPU time of such a run are several times as much.
"""
import asyncio
import collections
import ctypes
import gc
import itertools
import json
import os
import pathlib
import sys
import threading
import time
import tracemalloc

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))


def hasten(times):
    import gateway.app.build
    import gateway.maintenance.retention

    every, events, tasks, contexts = times
    gateway.maintenance.retention._EVERY = every
    gateway.app.build.lifetimes = lambda _: gateway.maintenance.retention.Lifetimes(events, tasks, contexts)


class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]


def malloced():
    """Bytes that malloc has handed out, and those that it keeps for later; None where there is no glibc."""
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None, None
    mallinfo2.restype = Mallinfo
    info = mallinfo2()
    return info.uordblks + info.hblkhd, info.fordblks


# Python 3.11 has it under another name.
TASKS = asyncio.tasks._scheduled_tasks if hasattr(asyncio.tasks, "_scheduled_tasks") else asyncio.tasks._all_tasks


def look(file, every, settle, trace):
    began, first, kinds = time.monotonic(), None, None
    for number in itertools.count():
        time.sleep(every)
        used, kept = malloced()
        line = {
            "at": round(time.monotonic() - began, 1),
            "tasks": len(TASKS),
            "blocks": sys.getallocatedblocks(),
            "malloc_used": used,
            "malloc_kept": kept,
        }
        if trace and line["at"] >= settle and number % 3 == 0:
            gc.collect()
            now = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, tracemalloc.__file__)])
            counts = collections.Counter(type(each).__name__ for each in gc.get_objects())
            if first is None:
                first, kinds = now, counts
            else:
                grown = now.compare_to(first, "traceback")[:15]
                line["grown"] = [[each.size_diff, each.count_diff, [str(frame) for frame in each.traceback]] for each in grown]
                line["kinds"] = (counts - kinds).most_common(15)
        with open(file, "a") as lines:
            lines.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    trace = int(os.environ.get("SOAK_TRACE", "0"))
    if trace:
        tracemalloc.start(trace)
    if "SOAK_RETENTION" in os.environ:
        hasten([float(each) for each in os.environ["SOAK_RETENTION"].split(",")])
    if "SOAK_INSIDE" in os.environ:
        arguments = (os.environ["SOAK_INSIDE"], float(os.environ["SOAK_EVERY"]), float(os.environ["SOAK_SETTLE"]), trace)
        threading.Thread(target=look, args=arguments, daemon=True).start()
    from gateway.__main__ import main

    main()
