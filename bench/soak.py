#!/usr/bin/env python3
"""Hold the gateway under a steady mix of turns and say whether what it takes stays the same. See README.md.

    soak.py --minutes 30 --rate 50
    soak.py --minutes 3 --trace 8           where memory goes; slower, and its other figures count for nothing
"""
import argparse
import asyncio
import collections
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import statistics
import sys
import tempfile
import time

from bench import Backend, Target, machine_cpu
from soak_load import KEPT_OPEN, Load
from targets import HERE

sys.path.insert(0, str(HERE.parent))

from tests.support.ports import free_port  # noqa: E402

MIB = 1 << 20
GATES = {"rss_slope_mib_per_min": 1.0, "fds_grown": 5, "threads_grown": 2, "wal_max_mib": 32, "failed": 0, "broken": 0}

COLUMNS = [("s", "at"), ("turns/s", "rate"), ("ok", "ok"), ("failed", "failed"), ("p50 ms", "p50_ms"), ("p99 ms", "p99_ms"), ("CPU", "cpu"), ("other", "other_cpu"),
           ("RSS MiB", "rss_mib"), ("fds", "fds"), ("threads", "threads"), ("tasks", "tasks"), ("blocks k", "kblocks"),
           ("WAL MiB", "wal_mib"), ("db MiB", "db_mib"), ("in use", "db_used_mib")]  # fmt: skip


class Sampler:
    """What can be seen of the gateway from outside, and what soak_gateway.py writes down inside."""

    def __init__(self, pid, db, inside, load):
        self.pid, self.db, self.inside, self.load = pid, pathlib.Path(db), pathlib.Path(inside), load
        self.began = self.last = time.monotonic()
        self.ok, self.cpu, self.machine, self.own = 0, self.cpu_s(), machine_cpu(), time.process_time()
        self.samples, self.told = [], set()
        self.pages = sqlite3.connect(f"file:{db}?mode=ro", uri=True, isolation_level=None)

    def cpu_s(self):
        """Of the whole process, with the threads that have ended by now."""
        user, system = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def take(self):
        now, load = time.monotonic(), self.load
        status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines())
        span, cpu, machine, own = now - self.last, self.cpu_s(), machine_cpu(), time.process_time()
        latencies, load.latencies = sorted(load.latencies), []
        used = self.pragma("page_count") - self.pragma("freelist_count")
        wal = pathlib.Path(f"{self.db}-wal")
        done = load.ok + load.failed
        sample = {
            "at": round(now - self.began, 1),
            "rate": round((done - self.ok) / span, 1),
            "ok": load.ok,
            "failed": load.failed,
            "p50_ms": round(latencies[len(latencies) // 2] * 1e3, 1) if latencies else None,
            "p99_ms": round(latencies[int(len(latencies) * 0.99)] * 1e3, 1) if latencies else None,
            "cpu": round((cpu - self.cpu) / span, 2),
            "other_cpu": round((machine - self.machine - (cpu - self.cpu) - (own - self.own)) / span, 2),
            "rss_mib": round(int(status["VmRSS"].split()[0]) / 1024, 1),
            "anon_mib": round(int(status["RssAnon"].split()[0]) / 1024, 1),
            "fds": len(os.listdir(f"/proc/{self.pid}/fd")),
            "threads": int(status["Threads"]),
            "under_way": len(load.under_way),
            "wal_mib": round(wal.stat().st_size / MIB, 1) if wal.exists() else 0,
            "db_mib": round(self.db.stat().st_size / MIB, 1),
            "db_used_mib": round(used * self.pragma("page_size") / MIB, 1),
        }
        with contextlib.suppress(OSError, IndexError):
            inside = json.loads(self.inside.read_text().splitlines()[-1])
            sample |= {"tasks": inside["tasks"], "kblocks": inside["blocks"] // 1000}
            if inside["malloc_used"] is not None:
                sample |= {"malloc_used_mib": round(inside["malloc_used"] / MIB, 1), "malloc_kept_mib": round(inside["malloc_kept"] / MIB, 1)}
        for reason in load.reasons.keys() - self.told:
            self.told.add(reason)
            print("  ", reason, flush=True)
        self.last, self.ok, self.cpu, self.machine, self.own = now, done, cpu, machine, own
        self.samples.append(sample)
        print("  ".join(f"{'' if (v := sample.get(key)) is None else v:>{max(len(title), 6)}}" for title, key in COLUMNS), flush=True)

    def pragma(self, name):
        return self.pages.execute(f"PRAGMA {name}").fetchone()[0]


def slope(points):
    """Of y per x, by least squares; 0 for fewer than two points."""
    if len(points) < 2:
        return 0.0
    mean_x, mean_y = (statistics.mean(each) for each in zip(*points, strict=True))
    over = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / over if over else 0.0


def verdict(samples, settle, wrong):
    """Each gate with what was found and whether it holds. What is before `settle` seconds fills caches and does not count."""
    settled = [each for each in samples if each["at"] >= settle]
    third = max(1, len(settled) // 3)

    def grown(key):
        return statistics.median(each[key] for each in settled[-third:]) - statistics.median(each[key] for each in settled[:third])

    found = {
        "rss_slope_mib_per_min": round(slope([(each["at"] / 60, each["rss_mib"]) for each in settled]), 3),
        "fds_grown": grown("fds"),
        "threads_grown": grown("threads"),
        "wal_max_mib": max(each["wal_mib"] for each in samples),
        "failed": samples[-1]["failed"],
        "broken": len(wrong),
    }
    return [(name, found[name], limit, found[name] <= limit) for name, limit in GATES.items()]


def log_of(file):
    """How many lines of each event, and the errors in full."""
    events, errors = collections.Counter(), []
    for text in pathlib.Path(file).read_text(errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        events[f"{line.get('event')} {line.get('failure', '')}".strip()] += 1
        if line.get("level") in ("error", "critical"):
            errors.append(text)
    return events, errors


def broken(db):
    """What the database must never hold, but for logs that retention has dropped."""
    from tests.invariants import violations

    swept = re.compile("has 0 events and says|its log ends with \\[\\]$")
    return [each for each in violations(pathlib.Path(db)) if not swept.search(each)]


def lives(minutes, rate):
    """Seconds in proportion to the run, for soak_gateway.py; no conversation may expire that is only waiting for its next turn."""
    return [max(5, 2 * minutes), max(10, 4 * minutes), max(20, 8 * minutes), max(30, 12 * minutes, 5 * KEPT_OPEN / rate)]


async def drive(target, o, settle, inside):
    load = Load(target.port, target.port + 1000, o.rate)
    sampler = Sampler(target.process.pid, target.db, inside, load)
    print("  ".join(f"{title:>6}" for title, _ in COLUMNS))
    seconds = o.minutes * 60
    running = asyncio.create_task(load.run(seconds))
    try:
        while not running.done():
            await asyncio.wait([running], timeout=o.every)
            if not running.done():
                sampler.take()
    finally:
        running.cancel()
        await asyncio.wait([running])
    sampler.load.latencies = []
    busy = sampler.samples
    sampler.samples = []
    await asyncio.sleep(2 * o.every)  # what ended last is seen
    print("at rest:")
    sampler.take()
    return load, busy, sampler.samples[0]


def unpurged(samples, lives):
    """The last sample before anything was over its time: then the database holds all that was said, but for what callers deleted."""
    before = [each for each in samples if each["at"] < lives]
    return before[-1] if before else None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--minutes", type=float, default=30)
    p.add_argument("--rate", type=float, default=50, help="turns started in a second")
    p.add_argument("--every", type=float, default=10, help="seconds between samples")
    p.add_argument("--settle", type=float, help="minutes that do not count for growth (default 10, or a third of a shorter run)")
    p.add_argument("--retention", help="seconds between sweeps, and the lives of events, tasks and idle contexts (default in proportion: 60,120,240,360 of 30 minutes)")
    p.add_argument("--trace", type=int, default=0, help="frames for tracemalloc: tells what has grown")
    p.add_argument("--keep", action="store_true", help="leave the database and the log where they are")
    p.add_argument("--out", help="result file (default results/soak-TIME.json)")
    o = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the gateway is stopped
    settle = 60 * (o.settle if o.settle is not None else min(10, o.minutes / 3))
    times = [float(each) for each in o.retention.split(",")] if o.retention else lives(o.minutes, o.rate)
    tmp = tempfile.mkdtemp(prefix="soak-")
    inside = f"{tmp}/inside"
    spec = {
        "name": "soak", "port": free_port(), "path": "/a2a/backend", "caps": {"send"},
        "cmd": sys.executable + " {here}/soak_gateway.py serve -c {here}/soak.yaml",
        "env": {"BENCH_DB": "{db}", "A2A_GATEWAY__SERVER__GRPC__PORT": "{grpc}", "SOAK_RETENTION": ",".join(map(str, times)), "SOAK_INSIDE": inside,
                "SOAK_EVERY": str(o.every), "SOAK_SETTLE": str(settle), "SOAK_TRACE": str(o.trace)},
    }  # fmt: skip
    out = pathlib.Path(o.out or HERE / "results" / time.strftime("soak-%Y%m%d-%H%M%S.json"))
    out.parent.mkdir(exist_ok=True)
    with Backend():
        target = Target(spec)
        try:
            target.start()
            print(f"gateway {target.process.pid}, database {target.db}, log {target.log.name}", flush=True)
            load, samples, rest = asyncio.run(drive(target, o, settle, inside))
        finally:
            target.stop()
    wrong = broken(target.db)
    judged = verdict(samples, settle, wrong)
    events, errors = log_of(target.log.name)
    seconds = samples[-1]["at"]
    full = unpurged(samples, times[1])
    report = {
        "minutes": o.minutes, "rate_asked": o.rate, "rate_reached": round(samples[-1]["ok"] / seconds, 1), "not_started": load.late, "settle_s": settle, "retention_s": times,
        "turns_ok": load.ok, "turns_failed": load.failed, "reasons": dict(load.reasons), "kinds": dict(load.kinds), "other_requests": load.others,
        "db_bytes_per_turn": round(full["db_used_mib"] * MIB / full["ok"]) if full else None,
        "log": dict(events), "errors": errors[:20], "broken": wrong[:20], "verdict": {name: {"found": found, "limit": limit, "holds": holds} for name, found, limit, holds in judged},
        "at_rest": rest, "samples": samples,
    }  # fmt: skip
    traced = [text for text in pathlib.Path(inside).read_text().splitlines() if '"grown"' in text]
    if traced:
        report["grown"] = json.loads(traced[-1])
    out.write_text(json.dumps(report, indent=1))
    if not o.keep:
        for folder in (tmp, target.tmp):
            shutil.rmtree(folder, ignore_errors=True)

    print(f"\n{load.ok} turns ended as they have to, {load.failed} did not; {report['rate_reached']} turns/s of {o.rate:g}, {load.late} not started; {report['db_bytes_per_turn']} database bytes a turn")
    for reason, count in load.reasons.most_common(20):
        print(f"  {count} x {reason}")
    print("log:", ", ".join(f"{name} {count}" for name, count in events.most_common(20)))
    for text in [*errors[:10], *wrong[:10]]:
        print(" ", text[:1000])
    if o.trace:
        for size, count, frames in report.get("grown", {}).get("grown", []):
            print(f"  {size:+} bytes in {count:+} blocks\n    " + "\n    ".join(frames))
        print(f"objects: {report.get('grown', {}).get('kinds')}\nwrote {out}")
        return
    if report["rate_reached"] < 0.95 * o.rate:
        print(f"NOTE: {o.rate:g} turns/s were not reached; what follows is of {report['rate_reached']}")
    for name, found, limit, holds in judged:
        print(f"{'ok    ' if holds else 'MISSED'} {name} {found} (at most {limit})")
    print(f"wrote {out}")
    sys.exit(0 if all(holds for *_, holds in judged) and not errors else 1)


if __name__ == "__main__":
    main()
