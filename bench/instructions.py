#!/usr/bin/env python3
"""Instructions of a gateway for each turn, counted by callgrind, of one checkout next to another. Needs valgrind.

    instructions.py CHECKOUT [CHECKOUT ...] --agents bench,chat --requests 200 --rounds 4 [--gate instructions.json]

A CHECKOUT has its own `.venv`. One caller at a time; each round has processes of its own. What else runs counts little: a round differs from the
next by 1 to 4 %, since what threads do once a second counts for more turns where those are slow. Of a turn's instructions those of the event loop
cost most time: the writer's are often loops that a processor runs through fast.

--gate checks a file of limits, {AGENT: {METHOD: {"all": N, "loop": N}}}, for the first CHECKOUT, prints each and exits 1 when one fails. They hold
for x86-64, a Python built as the one that they were counted with, and SQLite of the same release: others compile to other instructions.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from bench import BIN, BACKEND_PORT, Backend, make_body, request
from targets import HERE

PORT = 9190
WARM = 150  # turns before those that are counted: the interpreter has specialized its code, and each pool is filled
METHODS = {"send": "SendMessage", "stream": "SendStreamingMessage"}


class Counted:
    """A gateway under callgrind, which begins to count when it is told to."""

    def __init__(self, root, configuration):
        self.root, self.configuration = pathlib.Path(root).resolve(), HERE / configuration

    def __enter__(self):
        self.tmp = tempfile.TemporaryDirectory(prefix="instructions-")
        self.out = pathlib.Path(self.tmp.name) / "callgrind"
        env = {**os.environ, "BENCH_BACKEND": f"http://127.0.0.1:{BACKEND_PORT}", "BENCH_PORT": str(PORT), "BENCH_DB": f"{self.tmp.name}/bench.db", "PYTHONHASHSEED": "0"}
        valgrind = ["valgrind", "--tool=callgrind", "--separate-threads=yes", "--instr-atstart=no", "--fair-sched=yes", f"--callgrind-out-file={self.out}"]
        command = [*valgrind, self.root / ".venv/bin/python", self.root / ".venv/bin/a2a-gateway", "serve", "-c", self.configuration]
        self.log = open(f"{self.tmp.name}/log", "wb")
        self.process = subprocess.Popen(command, env=env, cwd=self.tmp.name, stdout=self.log, stderr=self.log)
        for _ in range(1200):
            time.sleep(0.1)
            if self.process.poll() is not None:
                raise RuntimeError(pathlib.Path(self.log.name).read_text()[-1500:])
            try:
                request(PORT, "/healthz", timeout=5)
            except OSError:
                continue
            return self
        raise RuntimeError("it does not answer")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.tmp.cleanup()

    def control(self, *arguments):
        subprocess.run(["callgrind_control", *arguments, str(self.process.pid)], check=True, capture_output=True)

    def load(self, agent, method, requests):
        body = pathlib.Path(self.tmp.name) / "body"
        body.write_text(make_body(METHODS[method], "n=20 gap=0"))
        command = [BIN / "a2aload", "--url", f"http://127.0.0.1:{PORT}/a2a/{agent}", "--body", body, "--header", "A2A-Version: 1.0"]
        done = subprocess.run([*command, "--ok", "TASK_STATE_COMPLETED", "--requests", str(requests)], check=True, capture_output=True, text=True).stdout
        if f'"ok":{requests},' not in done.replace(" ", ""):
            raise RuntimeError(done[:1500])

    def per_turn(self, agent, method, requests):
        self.load(agent, method, WARM)
        self.control("-i", "on")
        self.load(agent, method, requests)
        self.control("-i", "off")
        self.control("-d")
        total, loop = 0, 0
        for dump in self.out.parent.glob("callgrind.*"):
            counted = sum(map(int, re.findall(r"^totals: (\d+)", dump.read_text(), re.MULTILINE)))
            total += counted
            loop += counted if dump.name.endswith("-01") else 0
            dump.unlink()
        return {"all": total / requests, "loop": loop / requests}


def medians(counts):
    """Of each kind of count, over the rounds."""
    return {kind: statistics.median(each[kind] for each in counts) for kind in counts[0]}


def passes(gates, found, root):
    """Prints every limit, and whether it holds."""
    fine = True
    for agent, methods in gates.items():
        for method, limits in methods.items():
            counted = medians(found[agent, method][root])
            for kind, limit in limits.items():
                holds = counted[kind] <= limit
                fine = fine and holds
                print(f"{'ok  ' if holds else 'FAIL'} {agent} {method}, {kind}: {counted[kind]:,.0f} of at most {limit:,.0f}")
    return fine


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("roots", nargs="+", metavar="CHECKOUT")
    p.add_argument("--config", default="gateway.yaml")
    p.add_argument("--agents", default="bench,chat", help="of this configuration, comma-separated")
    p.add_argument("--requests", type=int, default=200)
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--gate", type=pathlib.Path, help="a file of limits")
    o = p.parse_args()
    found = {}
    with Backend():
        for _ in range(o.rounds):
            for root in o.roots:
                with Counted(root, o.config) as gateway:
                    for agent in o.agents.split(","):
                        for method in METHODS:
                            counted = gateway.per_turn(agent, method, o.requests)
                            found.setdefault((agent, method), {}).setdefault(root, []).append(counted)
                            print(f"{agent} {method} {root}: {counted['all']:,.0f}, of these {counted['loop']:,.0f} of the event loop", flush=True)
    for (agent, method), by_root in found.items():
        first = medians(by_root[o.roots[0]])
        for root, counts in by_root.items():
            all_ = [each["all"] for each in counts]
            spread = (max(all_) - min(all_)) / min(all_)
            now = medians(counts)
            ratios = ", ".join(f"{kind} {now[kind]:,.0f} ({now[kind] / first[kind] - 1:+.2%})" for kind in now)
            print(f"{agent:8} {method:7} {root}: {ratios}, spread {spread:.2%}")
    if o.gate and not passes(json.loads(o.gate.read_text()), found, o.roots[0]):
        sys.exit(1)


if __name__ == "__main__":
    main()
