#!/usr/bin/env python3
"""Instructions of a gateway for each turn, counted by callgrind, of one checkout next to another. Needs valgrind.

    instructions.py CHECKOUT [CHECKOUT ...] --agents bench,chat --requests 200 --rounds 4

A CHECKOUT has its own `.venv`. One caller at a time; each round has processes of its own. What else runs counts little: a round differs from the
next by 1 to 4 %, since what threads do once a second counts for more turns where those are slow.
"""
import argparse
import os
import pathlib
import re
import signal
import statistics
import subprocess
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
        total = 0
        for dump in self.out.parent.glob("callgrind.*"):
            total += sum(map(int, re.findall(r"^totals: (\d+)", dump.read_text(), re.MULTILINE)))
            dump.unlink()
        return total / requests


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("roots", nargs="+", metavar="CHECKOUT")
    p.add_argument("--config", default="gateway.yaml")
    p.add_argument("--agents", default="bench,chat", help="of this configuration, comma-separated")
    p.add_argument("--requests", type=int, default=200)
    p.add_argument("--rounds", type=int, default=4)
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
                            print(f"{agent} {method} {root}: {counted:,.0f}", flush=True)
    for (agent, method), by_root in found.items():
        first = statistics.median(by_root[o.roots[0]])
        for root, counts in by_root.items():
            spread = (max(counts) - min(counts)) / min(counts)
            print(f"{agent:8} {method:7} {root}: {statistics.median(counts):,.0f} ({statistics.median(counts) / first - 1:+.2%}, spread {spread:.2%})")


if __name__ == "__main__":
    main()
