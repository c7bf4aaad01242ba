#!/usr/bin/env python3
"""What limits many gateways on one PostgreSQL: a model of a few sums, and a simulation that it is checked against. See README.md.

    replicas.py check                   model and simulation next to what pg_measure.py has measured
    replicas.py table                   10, 100 and 1,000 replicas: what comes first, and after each next step
    replicas.py rows                    bytes, pages and hours of 10^9 events
"""

import argparse
import heapq
import json
import math
import pathlib
import random
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent

UNITS = 22
"""Of a turn of 20 deltas that come one by one: its acceptance, each delta, its end."""

EVENTS = 21
"""Rows of the event log that such a turn leaves."""

LINGER_FROM, LINGER = 1000.0, 0.003
"""Units per second from which the writer waits so many seconds for a larger group (storage/write/writer.py)."""

MOST_UNITS = 256
"""Of a group."""

IDLE_GROUPS, IDLE_NOTIFICATIONS = 0.6, 0.2
"""Per second of a replica beside its turns: it renews its leases three times in 5 s, and says a word to itself every 5 s."""


@dataclass(frozen=True)
class Costs:
    """Seconds of CPU of the server, unless said otherwise."""

    group: float
    """Of a group, whatever is in it: BEGIN, locks, the row of the writer, COMMIT."""
    unit: float
    """Of a unit of a turn, on average."""
    say: float
    """Of a notification, for its sender."""
    say_each: float
    """The same for each listener, who gets a signal."""
    wake: float
    """Of a listener's backend that was signalled, whether the channel is its own or not."""
    pass_on: float
    """Of a listener's backend for each notification that it passes on."""
    hear: float
    """CPU of the gateway that hears it."""
    turn: float
    """CPU of the gateway for a turn."""
    sync: float
    """Seconds that the disk takes for a commit."""
    wal_group: float
    wal_unit: float
    """Bytes of the write-ahead log, without whole pages."""


@dataclass(frozen=True)
class Server:
    """What there is of it. `wal` is bytes per second that its disk and its standbys take for long."""

    cores: int = 32
    wal: float = 200e6
    share: float = 0.7
    """Of all that, and of a gateway's core, before waits grow."""


@dataclass(frozen=True)
class Plan:
    """What is changed of today's: nothing, by default."""

    name: str = "today"
    linger: float = 0.0
    """Seconds for which each group grows before it is written."""
    followers: int | None = None
    """Replicas that a notification reaches; None: all."""
    bus: bool = False
    """Notifications go beside the database."""
    shards: int = 1
    """Databases, each on a server of its own, that share the principals."""


@dataclass(frozen=True)
class Load:
    """What so many replicas with so many turns per second each take: cores, bytes and seconds, per second."""

    group: float
    """Mean units of a group."""
    groups: float
    rows_cores: float
    fanout_cores: float
    wal: float
    gateway: float
    """Cores of one replica."""
    xids: float
    of: dict[str, dict[str, float]] = field(default_factory=dict)
    """By what there is, the share that each use takes of it; 1 is full."""

    @property
    def full(self) -> tuple[float, str]:
        """The largest share, of what, and for what mostly."""
        what, uses = max(self.of.items(), key=lambda each: sum(each[1].values()))
        return sum(uses.values()), f"{what}, by {max(uses, key=lambda use: uses[use])}"


def fitted(points: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """`a` and `b` of cost = a + b * size that miss the costs by the least share, so that small groups count like large ones."""
    rows = [(1 / cost, size / cost) for size, cost in points]
    aa, ab, bb = (sum(x * y for x, y in pairs) for pairs in ([(a, a) for a, _ in rows], rows, [(b, b) for _, b in rows]))
    a1, b1 = sum(a for a, _ in rows), sum(b for _, b in rows)
    determinant = aa * bb - ab * ab
    return (a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant


def group_size(rate: float, costs: Costs, plan: Plan | None = None) -> float:
    """Mean units of a group of a writer to which so many units come per second, independently of each other.

    While a group is written the next one gathers; when none has come meanwhile, the next one is a single unit.
    """
    plan = plan or Plan()
    linger = max(plan.linger, LINGER if rate > LINGER_FROM else 0.0)
    rate /= plan.shards
    size = 1.0
    for _ in range(200):
        lingered = rate * linger
        came = rate * (costs.sync + costs.group + costs.unit * size + costs.say)
        size = min(MOST_UNITS, (size + lingered + came + math.exp(-came)) / 2)
    return size


def wakes(rate: float, sync: float) -> float:
    """Per second, of a listener to whom so many notifications come: those behind one sync of the disk come together."""
    return (1 - math.exp(-rate * sync)) / sync


def load(replicas: int, turns: float, costs: Costs, server: Server, plan: Plan) -> Load:
    """`turns` per second and replica. What is said of the server is said of one of the plan's."""
    units = turns * UNITS
    size = group_size(units, costs, plan)
    written = replicas * units / size / plan.shards
    groups, said = written + replicas * IDLE_GROUPS, written + replicas * IDLE_NOTIFICATIONS
    listeners = replicas if plan.followers is None else min(plan.followers, replicas)
    rows_cores = groups * costs.group + replicas * units / plan.shards * costs.unit
    each_listener = said * listeners / replicas
    """Notifications that reach a replica."""
    fanout = said * (costs.say + listeners * costs.say_each) + replicas * (
        wakes(each_listener, costs.sync) * costs.wake + each_listener * costs.pass_on
    )
    fanout = 0.0 if plan.bus else fanout
    heard = each_listener * plan.shards
    wal = groups * costs.wal_group + replicas * units / plan.shards * costs.wal_unit
    cores = server.cores * server.share
    return Load(
        group=size, groups=groups, rows_cores=rows_cores, fanout_cores=fanout, wal=wal,
        gateway=turns * costs.turn + heard * costs.hear, xids=groups if plan.bus else groups + said,
        of={
            "CPU of the server": {"rows": rows_cores / cores, "notifications": fanout / cores},
            "write-ahead log": {"rows": wal / (server.wal * server.share)},
            "CPU of a gateway": {"turns": turns * costs.turn / server.share, "notifications": heard * costs.hear / server.share},
        },
    )  # fmt: skip


def most(replicas: int, costs: Costs, server: Server, plan: Plan) -> tuple[float, str]:
    """Turns per second and replica at which the first limit is met, and which that is."""
    low, high = 0.0, 1.0 / costs.turn
    for _ in range(60):
        middle = (low + high) / 2
        full, _ = load(replicas, middle, costs, server, plan).full
        low, high = (low, middle) if full > 1 else (middle, high)
    return low, load(replicas, low, costs, server, plan).full[1]


# ---------- the simulation ----------
@dataclass
class Outcome:
    groups: int = 0
    units: int = 0
    told: list[float] = field(default_factory=list)
    """Seconds from the arrival of a unit to its confirmation."""
    heard: list[float] = field(default_factory=list)
    """Seconds from the arrival of a unit until another replica has heard of it."""
    busy: float = 0.0
    """Seconds of CPU of the server."""
    syncs: int = 0


class Simulation:
    """Writers, cores that take one piece of work after another, a disk that syncs all commits that wait, and listeners."""

    def __init__(
        self, replicas: int, costs: Costs, cores: int, *, rate: float | None = None, group: int = 8, client: float = 0.0,
        listeners: int | None = None, linger: float = 0.0, wait: float = 0.0, seed: int = 1,
    ) -> None:  # fmt: skip
        """`rate`: units per second and replica, at random; None: each has always another group of `group` units. `client` is CPU
        of a group on the same cores, `wait` what its process waits besides."""
        self._costs, self._cores, self._rate, self._group, self._client = costs, cores, rate, group, client
        self._pause = wait
        self._linger = max(linger, LINGER if rate is not None and rate > LINGER_FROM else 0.0)
        self._listeners = replicas if listeners is None else listeners
        self._random = random.Random(seed)
        self._now, self._count = 0.0, 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._idle, self._waiting = cores, deque[tuple[float, Callable[[], None]]]()
        self._queues: list[list[float]] = [[] for _ in range(replicas)]
        self._writing = [False] * replicas
        self._syncing, self._to_sync = False, list[Callable[[], None]]()
        self._pending: list[list[float]] = [[] for _ in range(self._listeners)]
        self.outcome = Outcome()

    def run(self, seconds: float) -> Outcome:
        for replica in range(len(self._queues)):
            if self._rate is None:
                self._queues[replica] = [0.0] * self._group
                self._write(replica)
            else:
                self._later(self._random.expovariate(self._rate), lambda replica=replica: self._arrive(replica))
        while self._due and self._due[0][0] <= seconds:
            self._now, _, step = heapq.heappop(self._due)
            step()
        return self.outcome

    def _later(self, seconds: float, step: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (self._now + seconds, self._count, step))

    def _work(self, seconds: float, then: Callable[[], None]) -> None:
        """On one of the cores, when one is free."""
        if self._idle == 0:
            self._waiting.append((seconds, then))
            return
        self._idle -= 1
        self._begin(seconds, then)

    def _begin(self, seconds: float, then: Callable[[], None]) -> None:
        self.outcome.busy += seconds

        def end() -> None:
            if self._waiting:
                self._begin(*self._waiting.popleft())
            else:
                self._idle += 1
            then()

        self._later(seconds, end)

    def _arrive(self, replica: int) -> None:
        assert self._rate is not None
        self._queues[replica].append(self._now)
        self._later(self._random.expovariate(self._rate), lambda: self._arrive(replica))
        if not self._writing[replica]:
            self._write(replica)

    def _write(self, replica: int) -> None:
        self._writing[replica] = True
        self._later(self._linger, lambda: self._send(replica))

    def _send(self, replica: int) -> None:
        units, self._queues[replica] = self._queues[replica][:MOST_UNITS], self._queues[replica][MOST_UNITS:]
        costs = self._costs
        statements = self._client + costs.group + costs.unit * len(units)
        self._later(self._pause, lambda: self._work(statements, lambda: self._commit(lambda: self._committed(replica, units))))

    def _commit(self, then: Callable[[], None]) -> None:
        self._to_sync.append(then)
        if not self._syncing:
            self._sync()

    def _sync(self) -> None:
        together, self._to_sync, self._syncing = self._to_sync, [], True
        self.outcome.syncs += 1

        def end() -> None:
            self._syncing = False
            if self._to_sync:
                self._sync()
            for then in together:
                then()

        self._later(self._costs.sync, end)

    def _committed(self, replica: int, units: list[float]) -> None:
        self.outcome.groups += 1
        self.outcome.units += len(units)
        said = self._costs.say + self._costs.say_each * self._listeners
        self._work(said, lambda: self._said(replica, units))

    def _said(self, replica: int, units: list[float]) -> None:
        self.outcome.told += [self._now - at for at in units]
        for listener in range(self._listeners):
            self._pending[listener].append(units[0])
            if len(self._pending[listener]) == 1:
                # Those that come before it runs are passed on with it.
                self._work(self._costs.wake, lambda listener=listener: self._woken(listener))
        if self._rate is None:
            self._queues[replica] = [self._now] * self._group
        if self._queues[replica]:
            self._write(replica)
        else:
            self._writing[replica] = False

    def _woken(self, listener: int) -> None:
        heard, self._pending[listener] = self._pending[listener], []
        self._work(self._costs.pass_on * len(heard), lambda: self._heard(listener, heard))

    def _heard(self, listener: int, heard: Sequence[float]) -> None:
        if listener == 0:
            self.outcome.heard += [self._now - at for at in heard]


# ---------- what was measured ----------
def parts_of(path: pathlib.Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return {name: part["found"] for name, part in found.items()}


def costs_of(found: dict[str, Any], turn: float) -> Costs:
    """`turn` is CPU seconds of a gateway for a turn (docs/performance.md)."""
    points = {row["size"]: row for row in found["groups"]}
    heard = {(row["listeners"], row["elsewhere"]): row for row in found["notify"] if "listeners" in row}
    none, all_, elsewhere = heard[0, False], heard[50, False], heard[50, True]
    group, unit = fitted((size, row["server_us_per_group"]) for size, row in points.items())
    # Of a notification the sender has its own part, which `groups` contains already, and one for each listener.
    say_each = (all_["sender_us"] - none["sender_us"]) / 50
    wake = elsewhere["us_per_listener"]
    wal_group, wal_unit = fitted((size, row["wal_bytes_per_unit"] * size) for size, row in points.items())
    micro = 1e-6
    return Costs(
        group=max(0.0, group - none["sender_us"]) * micro, unit=unit * micro, say=none["sender_us"] * micro, say_each=say_each * micro, wake=wake * micro,
        pass_on=max(0.0, all_["us_per_listener"] - wake) * micro, hear=all_["gateway_us_per_listener"] * micro, turn=turn,
        sync=found["groups"][0]["fdatasync_ms"] / 1e3, wal_group=max(0.0, wal_group), wal_unit=wal_unit,
    )  # fmt: skip


def levels(rows: float, per_leaf: float, per_inner: float) -> int:
    """Pages that a search of an index of so many rows reads."""
    return 1 + max(0, math.ceil(math.log(max(1.0, rows / per_leaf), per_inner)))


# ---------- tables ----------
def show(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


PLANS = (
    Plan(),
    Plan("groups grow for 20 ms", linger=0.02),
    Plan("20 ms, and only followers are woken", linger=0.02, followers=1),
    Plan("20 ms, an event bus", linger=0.02, followers=1, bus=True),
    Plan("20 ms, a bus, 4 databases", linger=0.02, followers=1, bus=True, shards=4),
    Plan("20 ms, a bus, 16 databases", linger=0.02, followers=1, bus=True, shards=16),
)


def table(costs: Costs, server: Server) -> None:
    for replicas in (10, 100, 1000):
        rows = []
        for plan in PLANS:
            turns, limit = most(replicas, costs, server, plan)
            at = load(replicas, turns, costs, server, plan)
            rows.append((
                plan.name, f"{turns:,.2f}", f"{turns * replicas:,.0f}", limit, f"{at.group:.1f}", f"{at.groups:,.0f}", f"{at.rows_cores:.1f} + {at.fanout_cores:.1f}",
                f"{at.wal / 1e6:.1f}", f"{at.gateway:.2f}", f"{2e8 / max(at.xids, 1e-9) / 3600:.1f}",
            ))  # fmt: skip
        idle = load(replicas, 0, costs, server, Plan())
        print(f"{replicas} replicas, {idle.rows_cores + idle.fanout_cores:.2f} cores of the server without any turn; each server with {server.cores} cores and {server.wal / 1e6:.0f} MB/s, {server.share:.0%} used at most:\n")
        show(("plan", "turns/s each", "turns/s", "first limit", "units a group", "groups/s", "cores: rows + notifications", "WAL MB/s", "cores of a gateway", "hours to 2*10^8 xids"), rows)


def rows_table(found: dict[str, Any]) -> None:
    last, of_turn = found["size"][-1], found["rows"]["bytes_per_turn"]
    events = 10**9
    turns = events / EVENTS
    heap, index = events * last["heap_per_event"], events * last["index_per_event"]
    other = sum(each["heap"] + each["indexes"] for name, each in of_turn.items() if name != "event") * turns
    per_inner = last["events_per_leaf"]
    show(
        ("of 10^9 events", ""),
        (
            ("turns of 20 deltas", f"{turns / 1e6:,.1f} million"),
            ("table event", f"{heap / 1e9:,.0f} GB ({last['heap_per_event']:.0f} B each)"),
            ("pk_event", f"{index / 1e9:,.0f} GB ({last['index_per_event']:.0f} B each), {levels(events, last['events_per_leaf'], per_inner)} pages a search"),
            ("all other tables and indexes", f"{other / 1e9:,.0f} GB"),
            *((f"hours to get there at {rate:,} turns/s", f"{turns / rate / 3600:,.1f}") for rate in (100, 1000, 10_000)),
        ),
    )


def off(found: float, expected: float) -> str:
    return f"{found / expected - 1:+.0%}"


SIMULATED = 2.0
"""Seconds of a simulation."""


def waits(row: dict[str, float]) -> float:
    """Seconds of a group in which neither its writer nor the server has used a core."""
    return max(0.0, row["writers"] / row["groups_per_s"] - (row["server_us_per_group"] + row["client_us_per_group"]) / 1e6)


def simulated(rows: Sequence[dict[str, float]], costs: Costs) -> tuple[float, list[Outcome]]:
    """What writers without a pause do on two cores. What one of them waits is partly the disk, which all of them share, and partly its own
    wait for a core: the share is the one that fits the others best, of eleven."""
    idle, found = waits(rows[0]), []
    for tenths in range(11):
        disk, runs = tenths / 10, []
        for row in rows:
            scale = row["server_us_per_group"] / ((costs.group + costs.say + 8 * costs.unit) * 1e6)
            now = replace(costs, group=costs.group * scale, unit=costs.unit * scale, say=costs.say * scale, sync=max(1e-6, idle * disk))
            runs.append(Simulation(int(row["writers"]), now, 2, group=8, client=row["client_us_per_group"] / 1e6, listeners=0, wait=idle * (1 - disk)).run(SIMULATED))
        missed = max(abs(math.log(run.groups / SIMULATED / row["groups_per_s"])) for row, run in zip(rows, runs, strict=True))
        found.append((missed, disk, runs))
    _, disk, runs = min(found, key=lambda each: each[0])
    return disk, runs


def check(found: dict[str, Any], costs: Costs) -> None:
    print(f"group {costs.group * 1e6:.0f} us, unit {costs.unit * 1e6:.1f} us, notification {costs.say * 1e6:.0f} + {costs.say_each * 1e6:.1f} us a listener at its sender, "
          f"{costs.wake * 1e6:.1f} + {costs.pass_on * 1e6:.1f} us at each listener's backend, {costs.hear * 1e6:.1f} us in its gateway; sync {costs.sync * 1e3:.2f} ms, WAL {costs.wal_group:.0f} B a group, {costs.wal_unit:.0f} B a unit\n")  # fmt: skip
    rows = []
    for row in found["groups"]:
        cpu = (costs.group + costs.say + costs.unit * row["size"]) * 1e6
        wal = costs.wal_unit + costs.wal_group / row["size"]
        rows.append((row["size"], f"{row['server_us_per_group']:.0f}", f"{cpu:.0f}", off(cpu, row["server_us_per_group"]), f"{row['wal_bytes_per_unit']:.0f}", f"{wal:.0f}", off(wal, row["wal_bytes_per_unit"])))
    show(("units a group", "server us a group, measured", "model", "", "WAL B a unit, measured", "model", ""), rows)
    rows = []
    for row in found["notify"]:
        if "listeners" in row:
            each = costs.wake + (0 if row["elsewhere"] else costs.pass_on)
            cpu = (costs.say + row["listeners"] * (costs.say_each + each)) * 1e6
            rows.append((row["listeners"], "another" if row["elsewhere"] else "this", f"{row['server_us']:.0f}", f"{cpu:.0f}", off(cpu, row["server_us"])))
    show(("listeners", "channel", "server us a notification, measured", "model", ""), rows)
    rows = []
    disk, runs = simulated(found["writers"], costs)
    for row, done in zip(found["writers"], runs, strict=True):
        rate = done.groups / SIMULATED
        rows.append((int(row["writers"]), f"{row['groups_per_s']:.0f}", f"{rate:.0f}", off(rate, row["groups_per_s"]), f"{row['syncs_per_group']:.2f}", f"{done.syncs / done.groups:.2f}",
                     f"{row['ms_p50']:.1f}", f"{statistics.median(done.told) * 1e3:.1f}"))  # fmt: skip
    print(f"{disk:.0%} of what one writer waits is the disk:\n")
    show(("writers", "groups/s, measured", "simulated", "", "syncs a group, measured", "simulated", "ms p50, measured", "simulated"), rows)
    rows = []
    here = replace(costs, sync=waits(found["writers"][0]))
    for row in found["gateway"]:
        turns = row["turns_per_s"]
        said = load(1, turns, here, Server(), Plan())
        each = said.xids - said.groups
        heard = row["others"] * (each * (here.say_each + here.pass_on) + wakes(each, here.sync) * here.wake)
        cpu = (said.rows_cores + said.fanout_cores + heard) / turns * 1e6
        wal = said.wal / turns
        rows.append((f"{turns:.1f}", row["others"], f"{row['units_per_turn']:.1f}", f"{row['units_per_group']:.2f}", f"{said.group:.2f}", f"{row['server_us_per_turn']:,.0f}", f"{cpu:,.0f}", off(cpu, row["server_us_per_turn"]),
                     f"{row['wal_bytes_per_turn']:,.0f}", f"{wal:,.0f}", off(wal, row["wal_bytes_per_turn"])))  # fmt: skip
    print("a whole gateway:\n")
    show(("turns/s", "other listeners", "units a turn", "units a group, measured", "model", "server us a turn, measured", "model", "", "WAL B a turn, measured", "model", ""), rows)
    rows = []
    quiet = replace(costs, sync=0.0005)
    for replicas, rate, linger in ((1, 100.0, 0.0), (1, 800.0, 0.0), (10, 100.0, 0.0), (10, 800.0, 0.0), (30, 300.0, 0.0), (30, 300.0, 0.02), (100, 100.0, 0.02)):
        done = Simulation(replicas, quiet, 32, rate=rate, linger=linger).run(3)
        said = load(replicas, rate / UNITS, quiet, Server(), Plan(linger=linger))
        size = done.units / done.groups
        cpu = said.rows_cores + said.fanout_cores
        rows.append((replicas, f"{rate:.0f}", f"{linger * 1e3:.0f}", f"{size:.2f}", f"{said.group:.2f}", off(said.group, size), f"{done.busy / 3:.2f}", f"{cpu:.2f}", off(cpu, done.busy / 3),
                     f"{statistics.median(done.told) * 1e3:.2f}", f"{statistics.median(done.heard) * 1e3:.2f}", f"{sorted(done.heard)[int(len(done.heard) * 0.99)] * 1e3:.2f}"))  # fmt: skip
    print("32 cores, a disk of 0.5 ms:\n")
    show(("replicas", "units/s each", "linger ms", "units a group, simulated", "model", "", "server cores, simulated", "model", "", "told p50 ms", "heard p50 ms", "heard p99 ms"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("check", "table", "rows"))
    parser.add_argument("--measured", type=pathlib.Path, default=HERE / "pg_measured.json")
    parser.add_argument("--turn", type=float, default=UNITS * 95.0, help="us of CPU of a gateway for a turn: 95 for each delta that comes alone (docs/performance.md)")
    parser.add_argument("--slower", type=float, default=1.0, help="times the CPU that the server took here, for `table`")
    parser.add_argument("--cores", type=int, default=32)
    parser.add_argument("--wal", type=float, default=200.0, help="MB/s")
    parser.add_argument("--sync", type=float, default=0.5, help="ms of the disk for a commit, for `table`")
    options = parser.parse_args()
    found = parts_of(options.measured)
    costs = costs_of(found, options.turn / 1e6)
    if options.what == "check":
        check(found, costs)
    elif options.what == "rows":
        rows_table(found)
    else:
        slower = {name: getattr(costs, name) * options.slower for name in ("group", "unit", "say", "say_each", "wake", "pass_on")}
        table(replace(costs, **slower, sync=options.sync / 1e3), Server(options.cores, options.wal * 1e6))


if __name__ == "__main__":
    main()
