#!/usr/bin/env python3
"""Measure A2A gateways side by side. See README.md.

    bench.py run --targets floor,a2a-sdk --scenarios send,stream --rounds 3
    bench.py run --url http://127.0.0.1:8000/ --name ours --pid 4242 --scenarios all
    bench.py list
"""
import argparse
import contextlib
import http.client
import json
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from pace import Pace
from targets import HERE, TARGETS, VENVS

BACKEND_PORT = int(os.environ.get("BENCH_BACKEND_PORT", "9100"))
BIN = HERE / "bin"


# ---------- processes ----------
def children(pid):
    """pid and all its descendants."""
    parents = {}
    for p in pathlib.Path("/proc").iterdir():
        if p.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(p.name)] = int((p / "stat").read_text().rsplit(")", 1)[1].split()[1])
    found = [pid]
    for one in found:
        found += [c for c, parent in parents.items() if parent == one]
    return found


def rss_kb(pid):
    total = 0
    for p in children(pid):
        with contextlib.suppress(OSError):
            total += int(pathlib.Path(f"/proc/{p}/statm").read_text().split()[1]) * 4
    return total


def machine_cpu():
    """Busy CPU seconds of the whole machine."""
    v = [int(x) for x in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return (sum(v[:8]) - v[3] - v[4]) / os.sysconf("SC_CLK_TCK")


def request(port, path, body=None, headers=(), timeout=30):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    c.request("POST" if body else "GET", path, body, {"Content-Type": "application/json", **dict(headers)})
    r = c.getresponse()
    return r.status, r.read()


class Backend:
    """The mock; one for the whole run."""

    def __enter__(self):
        subprocess.run(["make", "-s", "-C", HERE / "src"], check=True)
        self.p = subprocess.Popen([BIN / "mockllm", "--port", str(BACKEND_PORT)], stderr=subprocess.DEVNULL)
        time.sleep(0.2)
        if self.p.poll() is not None:
            sys.exit(f"port {BACKEND_PORT} is taken")
        return self

    def __exit__(self, *_):
        self.p.terminate()
        self.p.wait()

    def stats(self):
        return json.loads(request(BACKEND_PORT, "/stats")[1])


def wants_postgres(spec):
    return "postgres" in spec["caps"] and "cmd" in spec


def postgres():
    """The databases of a server of its own, for the run."""
    try:
        import pg_server
    except ImportError as error:
        sys.exit(f"{error.name} is missing: targets on PostgreSQL want the Python of the project's environment, ../.venv/bin/python bench.py")
    return pg_server.databases()


class Target:
    def __init__(self, spec, workers=1, databases=None, database=None):
        """`databases` are those of the run's PostgreSQL, for targets that want one; `database` is one that another process has already."""
        self.spec, self.workers, self.process = spec, workers, None
        self.databases, self.shared, self.database = databases if wants_postgres(spec) else None, database, None
        self.name, self.path, self.caps = spec["name"], spec["path"], spec["caps"]
        self.port = BACKEND_PORT if spec["port"] == "backend" else spec["port"]
        self.url = f"http://127.0.0.1:{self.port}{self.path}"
        self.headers = {"A2A-Version": "1.0", **spec.get("headers", {})}
        self.db = spec.get("db")

    def start(self):
        if "cmd" not in self.spec or self.process:
            return
        self.tmp = tempfile.mkdtemp(prefix="bench-")
        self.db = f"{self.tmp}/bench.db"
        pg = ""
        if self.databases:
            self.database = self.shared or self.databases.make()
            pg = self.databases.url(self.database)
        text = self.spec["cmd"]
        for venv in VENVS.glob("*"):
            text = text.replace("{py:%s}" % venv.name, f"{venv}/bin/python")
        fill = {"port": self.port, "grpc": self.port + 1000, "here": HERE, "root": HERE.parent, "other": os.environ.get("BENCH_OTHER", HERE.parent), "db": self.db, "workers": self.workers, "tmp": self.tmp,
                "pg": pg, "pg_sqlalchemy": pg.replace("postgresql:", "postgresql+asyncpg:")}  # fmt: skip
        env = {**os.environ, "BENCH_BACKEND": f"http://127.0.0.1:{BACKEND_PORT}", "BENCH_PORT": str(self.port)}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # a start that compiles everything again is nobody's start
        env |= {k: v.format(**fill) for k, v in self.spec.get("env", {}).items()}
        began = time.monotonic()
        cwd = HERE / self.spec["cwd"] if "cwd" in self.spec else self.tmp
        self.log = open(f"{self.tmp}/log", "wb")
        self.process = subprocess.Popen(
            shlex.split(text.format(**fill)), env=env, cwd=cwd, stdout=self.log, stderr=self.log, start_new_session=True
        )
        body = make_body("SendMessage" if "send" in self.caps else "SendStreamingMessage", "n=1")
        body = body.replace("@MID@", "m-0").replace("@CTX@", "")
        while time.monotonic() - began < 120:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(OSError, http.client.HTTPException):
                status, answer = request(self.port, self.path, body, self.headers.items())
                if status == 200 and b'"error"' not in answer:
                    self.startup_s = time.monotonic() - began
                    self.rss_start_kb = rss_kb(self.process.pid)
                    return
                if status not in (404, 503):
                    self.stop()
                    raise RuntimeError(f"{self.name}: HTTP {status} {answer[:300]!r}; log {self.log.name}")
            time.sleep(0.02)
        tail = pathlib.Path(self.log.name).read_text(errors="replace")[-1500:]
        self.stop()
        raise RuntimeError(f"{self.name} did not start:\n{tail}")

    def stop(self):
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            self.process = None
            if self.database and not self.shared:
                self.databases.drop(self.database)

    def restart(self):
        if "cmd" in self.spec:
            self.stop()
            self.start()

    def pids(self):
        pid = self.process.pid if self.process else self.spec.get("pid")
        return children(pid) if pid else []

    @contextlib.contextmanager
    def replica(self):
        """Another process on the same database, at a port of its own."""
        other = Target({**self.spec, "port": self.port + 500}, self.workers, self.databases, self.database)
        other.start()
        try:
            yield other
        finally:
            other.stop()

    def db_bytes(self):
        if self.database:
            return self.databases.bytes_of(self.database)
        if not self.db:
            return 0
        return sum(p.stat().st_size for p in map(pathlib.Path, (self.db, self.db + "-wal")) if p.exists())

    def call(self, method, params):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        return json.loads(request(self.port, self.path, body, self.headers.items())[1])


# ---------- load ----------
def make_body(method, directive, extra=""):
    text = f"bench [[mock {directive}]]"
    message = '{"messageId":"@MID@",@CTX@"role":"ROLE_USER","parts":[{"text":"' + text + '"}]}'
    return '{"jsonrpc":"2.0","id":1,"method":"' + method + '","params":{"message":' + message + extra + "}}"


def load(target, backend, body, sub_body=None, ids=None, version=None, replica=None, **flags):
    """Run a2aload once; flags are its options. Returns its JSON plus other_cpu_share. The CPU time of `replica` counts as the target's."""
    with tempfile.TemporaryDirectory() as tmp:
        command = [str(BIN / "a2aload"), "--url", target.url, "--body", f"{tmp}/body"]
        pathlib.Path(f"{tmp}/body").write_text(body)
        for k, v in (target.headers | ({"A2A-Version": version} if version else {})).items():
            command += ["--header", f"{k}: {v}"]
        if sub_body:
            pathlib.Path(f"{tmp}/sub").write_text(sub_body)
            command += ["--sub-body", f"{tmp}/sub"]
        if ids:
            pathlib.Path(f"{tmp}/ids").write_text("\n".join(ids))
            command += ["--ids", f"{tmp}/ids"]
        if target.databases:
            command += ["--server", str(target.databases.postmaster)]
        pids = target.pids() + (replica.pids() if replica else [])
        if pids:
            command += ["--pids", ",".join(map(str, pids))]
        command += ["--aux-pids", str(backend.p.pid)]
        for k, v in flags.items():
            command += [f"--{k}"] if v is True else [f"--{k}", str(v)]
        return measured(command)


def measured(command):
    """The JSON that a generator prints, and what else ran meanwhile."""
    busy, began = machine_cpu(), time.monotonic()
    with Pace() as pace:
        r = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300).stdout)
    r["machine_slow_share"] = pace.slow_share()
    wall = time.monotonic() - began
    whole = machine_cpu() - busy
    r["machine_cpu_share"] = round(whole / wall, 3)
    own = r.get("cpu_share", 0) + r.get("backend_cpu_share", 0) + r.get("server_cpu_share", 0) + r["gen_cpu_share"]
    r["other_cpu_share"] = round(max(0, whole / wall - own), 3)  # rough: includes ramp and drain
    return r


V1_OK = "TASK_STATE_COMPLETED"


def send_ok(t):
    return t.spec.get("send_ok", V1_OK)  # a message instead of a task is a lawful answer


def send(t, b, o):
    """Blocking SendMessage, 20 deltas, closed loop."""
    return load(t, b, make_body("SendMessage", "n=20 gap=0"), conns=o.conns, duration=o.duration, ok=send_ok(t))


def send_64(t, b, o):
    """The same over 64 connections, for targets on PostgreSQL: two workers have enough to do."""
    return load(t, b, make_body("SendMessage", "n=20 gap=0"), conns=64, duration=o.duration, ok=send_ok(t))


def send_open(t, b, o):
    """Blocking SendMessage at a fixed Poisson rate; the backend takes 20 ms."""
    return load(t, b, make_body("SendMessage", "n=20 gap=1000"), conns=1000, rate=o.rate, duration=o.duration, ok=send_ok(t))


def stream(t, b, o):
    """SendStreamingMessage, 20 deltas at once, closed loop: throughput and CPU per event."""
    return load(t, b, make_body("SendStreamingMessage", "n=20 gap=0"), conns=o.conns, duration=o.duration, ok=V1_OK)


def stream_0_3(t, b, o):
    """`stream` for a client of A2A 0.3 (message/stream)."""
    message = '{"kind":"message","messageId":"@MID@","role":"user","parts":[{"kind":"text","text":"bench [[mock n=20 gap=0]]"}]}'
    body = '{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{"message":' + message + "}}"
    return load(t, b, body, version="0.3", conns=o.conns, duration=o.duration, ok='"state":"completed"')


def stream_grpc(t, b, o):
    """`stream` by gRPC."""
    pids = ",".join(map(str, t.pids()))
    generator = [str(VENVS / "a2a/bin/python"), str(HERE / "grpc_load.py"), f"127.0.0.1:{t.port + 1000}", pids, "n=20 gap=0"]
    return measured([*generator, "--tenant", t.spec.get("tenant", ""), "--conns", str(o.conns), "--duration", str(o.duration)])


def stream_a2a(t, b, o):
    """`stream` in front of an A2A agent."""
    return stream(t, b, o)


def stream_langgraph(t, b, o):
    """`stream` in front of a LangGraph Agent Server."""
    return stream(t, b, o)


def stream_one(t, b, o):
    """One stream at a time, 4 deltas: what a caller waits for who is alone."""
    return load(t, b, make_body("SendStreamingMessage", "n=4 gap=20000"), conns=1, duration=o.duration, ok=V1_OK)


def stream_open(t, b, o):
    """10 streams begin per second, Poisson, with a delta every 20 ms (500 deltas/s): the first event at rest."""
    return load(t, b, make_body("SendStreamingMessage", "n=50 gap=20000"), conns=1000, rate=10, duration=o.duration, ok=V1_OK)


def stream_burst(t, b, o):
    """4 times per second, Poisson, 10 streams begin at once, 4 deltas each: the first event of callers who come together."""
    return load(
        t, b, make_body("SendStreamingMessage", "n=4 gap=20000"), conns=1000, rate=4, burst=10, duration=o.duration, ok=V1_OK
    )


def stream_paced(t, b, o):
    """10 streams with a delta every 20 ms (500 deltas/s): what the gateway adds when not busy."""
    return load(t, b, make_body("SendStreamingMessage", "n=50 gap=20000"), conns=10, duration=o.duration, ok=V1_OK)


def stream_busy(t, b, o):
    """50 streams with a delta every 25 ms (2000 deltas/s offered)."""
    return load(t, b, make_body("SendStreamingMessage", "n=40 gap=25000"), conns=50, duration=o.duration, ok=V1_OK)


def stream_flow(t, b, o):
    """200 streams with a delta every 10 ms (20000 deltas/s offered): cost of deltas that come one by one."""
    return load(t, b, make_body("SendStreamingMessage", "n=20 gap=10000"), conns=200, duration=o.duration, ok=V1_OK)


def stream_tools(t, b, o):
    """SendStreamingMessage with 5 server-side tool calls before 20 deltas."""
    return load(t, b, make_body("SendStreamingMessage", "n=20 gap=0 web=5"), conns=o.conns, duration=o.duration, ok=V1_OK)


def stream_rounds(t, b, o):
    """SendStreamingMessage with 5 tools that the gateway runs, in 2 rounds, before 20 deltas."""
    return load(t, b, make_body("SendStreamingMessage", "n=0 gap=0 tools=3 then=2"), conns=o.conns, duration=o.duration, ok=V1_OK)


def stream_big(t, b, o):
    """20 deltas of 4 KiB."""
    return load(t, b, make_body("SendStreamingMessage", "n=20 gap=0 bytes=4096"), conns=o.conns, duration=o.duration, ok=V1_OK)


def stream_long(t, b, o):
    """4 streams of 1000 deltas, 0.2 ms apart: shows cost that grows with the artifact."""
    return load(t, b, make_body("SendStreamingMessage", "n=1000 gap=200"), conns=4, requests=4, ok=V1_OK)


def make_tasks(t, n=200):
    body = make_body("SendMessage" if "send" in t.caps else "SendStreamingMessage", "n=20 gap=0").replace("@CTX@", '"contextId":"bench-ctx",')
    ids = []
    for i in range(n):
        _, raw = request(t.port, t.path, body.replace("@MID@", f"make-{time.time_ns()}-{i}"), t.headers.items())
        text = raw.decode()
        if "data:" in text:
            text = text.split("data:", 1)[1].split("\n", 1)[0]
        ids.append(json.loads(text)["result"]["task"]["id"])
    return ids


def python_stream(t, b, o):
    """An agent that is a Python function, 20 deltas at once, closed loop: what a delta costs that comes from another loop."""
    return stream(t, b, o)


def python_paced(t, b, o):
    """The same, 10 streams with a delta every 20 ms: what the way from another loop adds at rest."""
    return stream_paced(t, b, o)


def python_flow(t, b, o):
    """The same, 200 streams with a delta every 10 ms (20000 deltas/s offered)."""
    return stream_flow(t, b, o)


def get(t, b, o):
    """GetTask over 200 finished tasks of 20 deltas."""
    body = '{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"@TID@"}}'
    return load(t, b, body, ids=make_tasks(t), conns=o.conns, duration=o.duration, ok='"result"')


def list_(t, b, o):
    """ListTasks, pages of 50, in a context that has at least 200 tasks."""
    make_tasks(t)
    body = '{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"contextId":"bench-ctx","pageSize":50}}'
    r = load(t, b, body, conns=o.conns, duration=o.duration, ok='"tasks"')
    r["bytes_per_response"] = r["bytes"] // max(1, r["done"])
    return r


def idle(t, b, o, n):
    t.restart()
    r = load(t, b, make_body("SendStreamingMessage", "n=1000 gap=2000000"), conns=n, hold=True, ramp=200, duration=5)
    r["rss_kb_per_stream"] = round((r.get("rss_kb_end", 0) - r.get("rss_kb_start", 0)) / n, 2)
    t.restart()
    return r


def idle_100(t, b, o):
    """100 open streams, a delta every 2 s each: memory per stream, idle CPU."""
    return idle(t, b, o, 100)


def idle_1000(t, b, o):
    """1000 open streams."""
    return idle(t, b, o, 1000)


def idle_5000(t, b, o):
    """5000 open streams."""
    return idle(t, b, o, 5000)


SUBSCRIBE = '{"jsonrpc":"2.0","id":1,"method":"SubscribeToTask","params":{"id":"@TID@"}}'


def followed(t, b, o):
    """11 streams of 100 deltas, 20 ms apart (500 deltas/s in all), each followed at another process on the same PostgreSQL."""
    with t.replica() as other:
        # They begin a seventh of a second apart, so that their deltas are not in step; a follower is there before the first delta.
        body = make_body("SendStreamingMessage", "n=100 gap=20000 ttfb=200000")
        return load(t, b, body, sub_body=SUBSCRIBE, replica=other, follow=other.url, conns=11, ramp=7, warmup=3, duration=3 * o.duration, expect=100, ok=V1_OK)


def fanout(t, b, o):
    """One task with 50 deltas 20 ms apart, 100 subscribers."""
    return load(t, b, make_body("SendStreamingMessage", "n=50 gap=20000 ttfb=100000"), sub_body=SUBSCRIBE, fanout=100, duration=20, ok=V1_OK)


def multiturn(t, b, o):
    """4 contexts of 200 turns each: does a turn cost more as the context grows?"""
    return turns(t, b, 200)


def multiturn_500(t, b, o):
    """4 contexts of 500 turns each."""
    return turns(t, b, 500)


def turns(t, b, number):
    with tempfile.NamedTemporaryFile("r") as log:
        before, db = b.stats(), t.db_bytes()
        r = load(t, b, make_body("SendStreamingMessage", "n=20 gap=0"), conns=4, requests=4 * number, turns=number, turnlog=log.name, ok=V1_OK)
        rows = [line.split(",") for line in log]
    total = {}
    for _, turn, _, _, us, size in rows:
        total.setdefault(int(turn), []).append((float(us), int(size)))
    early = [x for k, v in total.items() if 10 < k <= 30 for x in v]
    late = [x for k, v in total.items() if k > number - 20 for x in v]
    after = b.stats()
    r["turn_us_early"] = round(statistics.median(x[0] for x in early), 1)
    r["turn_us_late"] = round(statistics.median(x[0] for x in late), 1)
    r["turn_growth"] = round(r["turn_us_late"] / r["turn_us_early"], 3)
    r["bytes_late_over_early"] = round(statistics.mean(x[1] for x in late) / statistics.mean(x[1] for x in early), 3)
    r["db_bytes_per_turn"] = round((t.db_bytes() - db) / 4 / number)
    r["backend_body_bytes_per_turn"] = round((after["sum_body_bytes"] - before["sum_body_bytes"]) / 4 / number)
    r["backend_last_body_bytes"] = after["last_body_bytes"]
    r["with_previous_response_id"] = after["with_previous_response_id"] - before["with_previous_response_id"]
    return r


SCENARIOS = {
    "send": (send, {"send"}),
    "send_64": (send_64, {"send", "postgres"}),
    "send_open": (send_open, {"send"}),
    "stream": (stream, {"stream"}),
    "stream_0_3": (stream_0_3, {"stream", "0.3"}),
    "stream_grpc": (stream_grpc, {"grpc"}),
    "stream_a2a": (stream_a2a, {"a2a"}),
    "stream_langgraph": (stream_langgraph, {"langgraph"}),
    "stream_one": (stream_one, {"stream"}),
    "stream_open": (stream_open, {"stream"}),
    "stream_burst": (stream_burst, {"stream"}),
    "stream_paced": (stream_paced, {"stream"}),
    "stream_busy": (stream_busy, {"stream"}),
    "stream_flow": (stream_flow, {"stream"}),
    "stream_tools": (stream_tools, {"stream"}),
    "stream_rounds": (stream_rounds, {"stream", "tools"}),
    "stream_big": (stream_big, {"stream"}),
    "stream_long": (stream_long, {"stream"}),
    "python_stream": (python_stream, {"function"}),
    "python_paced": (python_paced, {"function"}),
    "python_flow": (python_flow, {"function"}),
    "get": (get, {"get"}),
    "list": (list_, {"list"}),
    "followed": (followed, {"subscribe", "replicas"}),
    "fanout": (fanout, {"subscribe"}),
    "multiturn": (multiturn, {"stream", "context"}),
    "multiturn_500": (multiturn_500, {"stream", "context"}),
    "idle_100": (idle_100, {"stream"}),
    "idle_1000": (idle_1000, {"stream"}),
    "idle_5000": (idle_5000, {"stream"}),
}


# ---------- the run ----------
def line(name, scenario, n, r):
    lag, first = r.get("lag_us") or {}, r.get("first_event_us") or {}
    total = r.get("total_us") or {}
    extra = "".join(
        f" {k}={r[k]}" for k in ("rss_kb_per_stream", "open_streams", "turn_growth", "turn_us_late", "db_bytes_per_turn", "bytes_per_response", "server_cpu_us_per_request") if r.get(k)
    )
    if "followers" in r:
        late, behind = r["followed_lag_us"] or {}, r["followed_behind_us"] or {}
        extra += f" followed={late.get('p50', 0)}/{late.get('p99', 0)} behind={behind.get('p50', 0)}/{behind.get('p99', 0)} n={late.get('n', 0)} lost={r['followed_lost']}"
    return (
        f"{scenario:13} {name:17} #{n} ok={r['ok']}/{r['done']} rps={r['rps']:<8} ev/s={r['events_per_s']:<9} cpu_us/req={r.get('cpu_us_per_request', 0):<8} "
        f"cpu_us/ev={r.get('cpu_us_per_event', 0) if r['events'] else 0:<7} share={r.get('cpu_share', 0):<5} gen={r['gen_cpu_share']:<5} other={r['other_cpu_share']:<5} slow={r['machine_slow_share']:<6} "
        f"p50={total.get('p50', 0):<8} p99={total.get('p99', 0):<8} ttfe={first.get('p50', 0):<7} lag={lag.get('p50', 0)}/{lag.get('p99', 0)}{extra}"
        + (f" ERR {r['first_error'][:120]}" if r["first_error"] else "")
    )


# What happens once in a hundred, thirty times in a round or once, and a process that has no time left move by a tenth to a half
# from one round to the next: a median needs more of them. So do the figures that most gates are about.
RESTLESS = dict.fromkeys(
    ("startup", "send", "send_64", "stream", "stream_0_3", "stream_grpc", "get", "stream_one", "stream_open", "stream_busy", "stream_flow", "fanout", "followed"), 3
)


def run(o):
    names = o.targets.split(",") if o.targets else []
    specs = [TARGETS[n] for n in names]
    if o.url:
        host, _, path = o.url.removeprefix("http://").partition("/")
        caps = set(o.caps.split(","))
        specs.append({"name": o.name, "port": int(host.split(":")[1]), "path": "/" + path, "caps": caps, "pid": o.pid, "db": o.db,
                      "headers": dict(h.split(": ", 1) for h in o.header)})  # fmt: skip
    # The start is always measured.
    scenarios = list(SCENARIOS) if o.scenarios == "all" else [s for s in o.scenarios.split(",") if s != "startup"]
    if unknown := [one for one in scenarios if one not in SCENARIOS]:
        sys.exit(f"no such scenario: {', '.join(unknown)}; there are: startup, {', '.join(SCENARIOS)}")
    records = []
    out = pathlib.Path(o.out or HERE / "results" / time.strftime("run-%Y%m%d-%H%M%S.json"))
    out.parent.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        backend = stack.enter_context(Backend())
        databases = stack.enter_context(postgres()) if any(map(wants_postgres, specs)) else None
        targets = [Target(s, o.workers, databases) for s in specs]
        try:
            for t in list(targets):
                try:
                    # A first start reads its files from the disk, for whoever comes first the interpreter's, too.
                    t.start()
                except RuntimeError as e:
                    print(e, file=sys.stderr)
                    targets.remove(t)
            for n in range(o.rounds * RESTLESS["startup"]):
                for t in targets:
                    if t.process:
                        t.restart()
                        records.append({"target": t.name, "workers": o.workers, "scenario": "startup", "round": n, "startup_s": round(t.startup_s, 2), "rss_mb": round(t.rss_start_kb / 1024, 1)})
                        print(f"{'startup':13} {t.name:17} #{n} {records[-1]['startup_s']} s, {records[-1]['rss_mb']} MB", flush=True)
            for scenario in scenarios:
                function, needs = SCENARIOS[scenario]
                once = scenario.startswith("idle")
                for n in range(1 if once else o.rounds * RESTLESS.get(scenario, 1)):
                    for t in targets:                     # A B A B
                        if not needs <= t.caps or (t.name == "direct" and once):
                            continue
                        try:
                            if n and t.process:
                                t.restart()  # two processes of one program differ by a tenth, for as long as they live
                            r = function(t, backend, o)
                        except Exception as e:
                            print(f"{scenario:13} {t.name:17} #{n} failed: {type(e).__name__} {e}", file=sys.stderr, flush=True)
                            with contextlib.suppress(RuntimeError):
                                t.restart()
                            continue
                        records.append({"target": t.name, "workers": o.workers, "scenario": scenario, "round": n, "load": os.getloadavg()[0], **r})
                        print(line(t.name, scenario, n, r), flush=True)
                        out.write_text(json.dumps(records, indent=0))
        finally:
            for t in targets:
                t.stop()
    out.write_text(json.dumps(records, indent=0))
    print(f"wrote {out}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = p.add_subparsers(dest="command", required=True)
    sub.add_parser("list")
    r = sub.add_parser("run")
    r.add_argument("--targets", default="", help="names from targets.py, comma-separated")
    r.add_argument("--scenarios", default="send,stream,stream_paced", help="comma-separated, or all")
    r.add_argument("--rounds", type=int, default=2, help=f"of each scenario; times 3 for {', '.join(RESTLESS)}, which move most")
    r.add_argument("--duration", type=float, default=3, help="measured seconds of a timed scenario")
    r.add_argument("--conns", type=int, default=16, help="concurrency of the closed-loop scenarios")
    r.add_argument("--rate", type=float, default=100, help="requests/s of send_open")
    r.add_argument("--workers", type=int, default=1)
    r.add_argument("--out", help="result file (default results/run-TIME.json)")
    r.add_argument("--url", help="a server that already runs, e.g. http://127.0.0.1:8000/")
    r.add_argument("--name", default="ours")
    r.add_argument("--pid", type=int, help="its process id, for CPU and memory (children are included)")
    r.add_argument("--db", help="its sqlite file, for the growth of the database")
    r.add_argument("--header", action="append", default=[], help="'K: V', repeatable")
    r.add_argument("--caps", default="send,stream,get,list,subscribe,context")
    o = p.parse_args()
    if o.command == "list":
        for name, t in TARGETS.items():
            print(f"{name:18} {t.get('about', '')}")
        for name, (f, needs) in SCENARIOS.items():
            print(f"  {name:14} {f.__doc__ or ''}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that targets are stopped
    run(o)


if __name__ == "__main__":
    main()
