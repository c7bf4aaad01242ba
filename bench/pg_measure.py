#!/usr/bin/env python3
"""What the ledger costs a server of PostgreSQL, per group, unit and turn. See README.md.

    pg_measure.py groups without notify rows snapshot size writers connections gateway --out pg_measured.json
    pg_measure.py groups --seconds 2

Each part starts a server of its own (Debian's binaries, fsync on) and takes seconds. CPU times are those of the server's
processes, from /proc/PID/schedstat.
"""
import argparse
import asyncio
import json
import multiprocessing
import os
import pathlib
import random
import signal
import statistics
import sys
import threading
import time
from contextlib import contextmanager

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import psycopg
from pg_server import SETTINGS
from psycopg import pq

from gateway.a2a.model import Part, TaskState
from gateway.foundation.clock import row_id, uuid4
from gateway.ledger.calls import Complete, NewItem, Prepare
from gateway.ledger.leases import Heartbeat
from gateway.ledger.states import TurnStatus
from gateway.ledger.tasks import Append, EventRow, Finish
from gateway.ledger.threads import Caller, ThreadRecord
from gateway.ledger.turns import Accept
from gateway.ports.conversation import AssistantItem, HandleKind, StorageOwner
from gateway.testing.ledger_points import says
from storage.postgres import sql
from storage.postgres.groups import GroupStore
from storage.postgres.ledger import _prepare
from storage.postgres.settings import PostgresSettings
from storage.postgres.text import bound
from storage.write.units import unit
from storage.write.writer import Unit
from tests.support.postgres import postgres_server

EVENT = '{"artifactUpdate":{"taskId":"%s","contextId":"%s","artifact":{"artifactId":"c2f31f1aa6774d64d949fc6eebbb364d","parts":[{"text":"tok%d "}]},"append":true}}'
TEXT = " ".join(f"tok{number}" for number in range(20))
DELTAS = 20


# ---------- a turn, as the gateway writes it ----------
def turn(principal="anonymous", agent="a", process="18eb73e3c6f508c97f58db14666de2a2"):
    """Its units in order: one of 7 statements, one for each delta, one of 8."""
    context_row, thread, task, turn_row, call = row_id(), row_id(), uuid4(), row_id(), row_id()
    public, now = uuid4(), time.time_ns() // 1_000_000
    record = ThreadRecord(thread, context_row, agent, 1, StorageOwner.GATEWAY, HandleKind.NONE, None, 0, None)
    accept = Accept(
        caller=Caller(principal, ""), agent=agent, now=now, context_row=context_row, context_public=public, thread=record,
        new_thread=True, task=task, new_task=True, visible=True, turn=turn_row, message=says("hi"), digest="c9b4" * 16,
        key=None, event=None, last_event=0, working=True, process=process,
    )  # fmt: skip
    prepare = Prepare(
        thread=thread, generation=0, holder=process, lease_until=now + 5000, turn=turn_row, task=task, service_call=call,
        round=0, attempt=0, handle_in=None, now=now, event=None,
    )  # fmt: skip
    yield accept, prepare
    for number in range(1, DELTAS + 1):
        yield (Append(EventRow(task, number, number, (EVENT % (task, public, number)).encode())),)
    complete = Complete(
        thread=thread, generation=1, turn=turn_row, service_call=call, handle_in=None, handle_out=None, state=None, usage=None,
        items=(NewItem(AssistantItem((Part(text=TEXT),))),), tool_calls=(), sent=(1,), now=now,
    )  # fmt: skip
    end = '{"statusUpdate":{"taskId":"%s","contextId":"%s","status":{"state":"TASK_STATE_COMPLETED","timestamp":"2026-11-26T01:24:58.707Z"}}}'
    last = DELTAS + 1
    finish = Finish(
        task=task, turn=turn_row, thread=thread, status=TurnStatus.COMPLETED, failure_class=None, state=TaskState.COMPLETED,
        message=None, events=EventRow(task, last, last, (end % (task, public)).encode()), last_event=last,
        artifacts=('[{"artifact":{"artifactId":"c2f31f1aa6774d64d949fc6eebbb364d","parts":[{"text":"%s"}]}}]' % TEXT).encode(),
        messages=b"[]", usage=None, visible=True, now=now + 500, process=process,
    )  # fmt: skip
    yield complete, finish


UNITS = DELTAS + 2
"""Of a turn."""


def one(points):
    return Unit(unit(points), lambda _: None, 0.0, True)


def groups_of(size):
    """Groups without end: `size` turns in step, so that each group has a unit of each."""
    while True:
        turns = [turn() for _ in range(size)]
        for _ in range(UNITS):
            yield [one(next(each)) for each in turns]


# ---------- the server ----------
class Watched:
    """A server and what its processes have used so far."""

    def __init__(self, server):
        self.server = server
        self.postmaster = int((server.data / "postmaster.pid").read_text().split("\n")[0])
        self.connection = psycopg.connect(server.url(), autocommit=True)

    def close(self):
        self.connection.close()

    def one(self, text, *values):
        return self.connection.execute(text, values).fetchone()

    def all(self, text, *values):
        return self.connection.execute(text, values).fetchall()

    def cpu(self):
        """Seconds, of all processes together and of each kind. Processes that have ended do not count."""
        kinds = {}
        for process in pathlib.Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
                    if int(fields[1]) != self.postmaster:
                        continue
                    title = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode().split()
                    spent = int((process / "schedstat").read_text().split()[0]) / 1e9
                except OSError:
                    continue
                kind = title[1] if len(title) > 1 and title[1] in ("walwriter", "checkpointer", "autovacuum", "background") else "backends"
                kinds[kind] = kinds.get(kind, 0.0) + spent
        return kinds

    def wal(self):
        return int(self.one("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[0])

    def xids(self):
        return int(self.one("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")[0])

    def sizes(self):
        """Bytes of each table with rows, and of its indexes."""
        return {
            name: {"rows": rows, "heap": heap, "indexes": indexes}
            for name, rows, heap, indexes in self.all(
                "SELECT relname, n_tup_ins - n_tup_del, pg_table_size(relid), pg_indexes_size(relid) FROM pg_stat_user_tables ORDER BY 1"
            )
            if rows
        }


@contextmanager
def watched(settings=SETTINGS):
    with postgres_server(settings) as server:
        configuration = PostgresSettings(url=server.url())
        connect, _ = _prepare(configuration, True)
        seen = Watched(server)
        try:
            yield seen, connect
        finally:
            seen.close()


def store_on(connect):
    store = GroupStore(connect)
    store.open()
    return store


def written(store, units):
    outcomes, retried = store.write(units, list, closing=False)
    errors = [error for _, error in outcomes if error is not None]
    if errors or retried:
        raise errors[0] if errors else RuntimeError("not written")


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def spent(before, after):
    return {kind: after.get(kind, 0.0) - before.get(kind, 0.0) for kind in after}


def synced(folder):
    """Milliseconds that the disk takes for 8 kB, median of 100."""
    waits = []
    with (folder / "synced").open("wb", buffering=0) as file:
        file.write(bytes(1 << 20))
        os.fsync(file.fileno())
        for number in range(100):
            file.seek(number * 8192)
            file.write(bytes(8192))
            at = time.monotonic()
            os.fdatasync(file.fileno())
            waits.append(time.monotonic() - at)
    return round(statistics.median(waits) * 1e3, 2)


# ---------- parts ----------
def groups(seconds):
    """One writer, groups of one size, one after another; the write-ahead log without whole pages."""
    rows = []
    with watched({**SETTINGS, "full_page_writes": "off"}) as (seen, connect):
        disk = synced(seen.server.data)
        show("{0} ms p50 of a fdatasync of 8 kB", [disk])
        store = store_on(connect)
        for size in (1, 2, 8, 32, 128):
            source = groups_of(size)
            for _ in range(UNITS * (4 if size < 8 else 1)):
                written(store, next(source))
            latencies, made = [], 0
            cpu, wal, xids, mine, began = seen.cpu(), seen.wal(), seen.xids(), 0.0, time.monotonic()
            while time.monotonic() - began < seconds or made % UNITS:
                units = next(source)
                at, own = time.monotonic(), time.thread_time()
                written(store, units)
                latencies.append(time.monotonic() - at)
                mine += time.thread_time() - own
                made += 1
            wall = time.monotonic() - began
            used = spent(cpu, seen.cpu())
            server, count = sum(used.values()), made * size
            rows.append({
                "size": size, "groups": made, "fdatasync_ms": disk, "groups_per_s": made / sum(latencies), "units_per_s": count / sum(latencies),
                "server_us_per_group": server / made * 1e6, "server_us_per_unit": server / count * 1e6,
                "client_us_per_unit": mine / count * 1e6, "wal_bytes_per_unit": (seen.wal() - wal) / count,
                "xids_per_group": (seen.xids() - xids) / made,
                "ms_p50": statistics.median(latencies) * 1e3, "ms_p99": percentile(latencies, 0.99) * 1e3,
                "cpu_share": server / wall, "kinds": {kind: round(value / made * 1e6, 1) for kind, value in used.items()},
            })  # fmt: skip
            show("size {size}: {groups_per_s:.0f} groups/s, {units_per_s:.0f} units/s, server {server_us_per_group:.0f} us a group, {server_us_per_unit:.0f} a unit, "
                 "client {client_us_per_unit:.0f}, WAL {wal_bytes_per_unit:.0f} B a unit, {xids_per_group:.2f} xids a group, p50 {ms_p50:.2f} ms, p99 {ms_p99:.2f}", rows[-1])  # fmt: skip
        store.close()
    return rows


def without(seconds):
    """Groups of 32 with and without one thing that each of them has, by turns on one server."""
    figures = {}
    changes = {
        "as it is": ("SELECT 1", "SELECT 1"),
        "without the trigger of push notifications": ("ALTER TABLE event DISABLE TRIGGER push_due", "ALTER TABLE event ENABLE TRIGGER push_due"),
        "without the foreign key of events": ("ALTER TABLE event DROP CONSTRAINT fk_event_task", "ALTER TABLE event ADD CONSTRAINT fk_event_task FOREIGN KEY (task) REFERENCES task NOT VALID"),
    }
    with watched({**SETTINGS, "full_page_writes": "off"}) as (seen, connect):
        store, source = store_on(connect), groups_of(32)
        for _ in range(UNITS):
            written(store, next(source))
        for _ in range(round(seconds * 3)):
            for name, (change, back) in changes.items():
                seen.connection.execute(change)
                cpu, wal = seen.cpu(), seen.wal()
                for _ in range(UNITS):
                    written(store, next(source))
                used, bytes_ = sum(spent(cpu, seen.cpu()).values()) * 1e6 / UNITS / 32, (seen.wal() - wal) / UNITS / 32
                seen.connection.execute(back)
                figures.setdefault(name, []).append((used, bytes_))
        store.close()
    found = [
        {"change": name, "server_us_per_unit": statistics.median(used for used, _ in each), "wal_bytes_per_unit": statistics.median(bytes_ for _, bytes_ in each)}
        for name, each in figures.items()
    ]
    for each in found:
        show("{change}: server {server_us_per_unit:.1f} us a unit, WAL {wal_bytes_per_unit:.0f} B", each)
    return found


def notify(seconds):
    """Notifications at 200 a second, heard by so many connections; `elsewhere`: they listen to another channel. Medians of interleaved rounds."""
    cases = [(0, False), (1, False), (10, False), (50, False), (50, True)]
    rounds = {case: [] for case in cases}
    with watched() as (seen, connect):
        sender = connect()
        for _ in range(round(seconds * 2)):
            for case in cases:
                rounds[case].append(_said(seen, sender, *case))
        rows = [{name: statistics.median(each[name] for each in found) for name in found[0]} for found in rounds.values()]
        for row in rows:
            row |= {"listeners": int(row["listeners"]), "elsewhere": bool(row["elsewhere"])}
            show("{listeners} listeners, elsewhere {elsewhere}: {heard:.0f} heard, server {server_us:.0f} us a notification (its sender {sender_us:.0f}), {us_per_listener:.1f} us for each listener, "
                 "in its process {gateway_us_per_listener:.1f}, lag p50 {lag_ms_p50:.2f} ms, p99 {lag_ms_p99:.2f}", row)  # fmt: skip
        sender.close()
        for senders, listeners in ((1, 0), (8, 0), (8, 50)):
            ear = Ear(seen.server.url(), listeners, sql._CHANNEL)
            rate, cost = burst(seen, connect, senders, seconds)
            rows.append({"senders": senders, "heard_by": listeners, "per_s": rate, "server_us": cost})
            ear.close()
            show("{senders} senders without a pause, {heard_by} listeners: {per_s:.0f}/s, server {server_us:.0f} us each", rows[-1])
    return rows


def _said(seen, sender, listeners, elsewhere, rate=200, count=150):
    ear = Ear(seen.server.url(), listeners, "elsewhere" if elsewhere else sql._CHANNEL)
    word, sent = bound(sql.NOTIFY, {"payload": json.dumps([uuid4() for _ in range(8)])}), []
    for _ in range(20):
        sender.one(word)
    time.sleep(0.1)
    ear.heard.clear()
    backend = pathlib.Path(f"/proc/{sender.one(bound(sql.plain('SELECT pg_backend_pid()'), {}))[0][0]}/schedstat")
    cpu, own, ears, began = seen.cpu(), int(backend.read_text().split()[0]), ear.cpu(), time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        at = time.monotonic()
        sender.one(word)
        sent.append((at, time.monotonic()))
    time.sleep(0.2)
    server = sum(spent(cpu, seen.cpu()).values()) * 1e6 / count
    spoke, ears = (int(backend.read_text().split()[0]) - own) / 1e3 / count, (ear.cpu() - ears) * 1e6 / count
    lags = [heard - at for times in ear.heard.values() for (at, _), heard in zip(sent, times, strict=True)] or [0.0]
    many = max(listeners, 1)
    ear.close()
    return {
        "listeners": listeners, "elsewhere": elsewhere, "rate": rate, "heard": sum(map(len, ear.heard.values())), "sender_us": spoke, "server_us": server,
        "us_per_listener": (server - spoke) / many, "gateway_us_per_listener": ears / many,
        "send_ms_p50": statistics.median(after - at for at, after in sent) * 1e3, "lag_ms_p50": statistics.median(lags) * 1e3, "lag_ms_p99": percentile(lags, 0.99) * 1e3,
    }  # fmt: skip


class Ear:
    """So many listeners in a thread."""

    def __init__(self, url, listeners, channel):
        self.heard, self._ended = {}, threading.Event()
        self._connections = []
        self._spent = 0.0
        for _ in range(listeners):
            connection = pq.PGconn.connect(url.encode())
            connection.exec_(f"LISTEN {channel}".encode())
            self._connections.append(connection)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cpu(self):
        return self._spent

    def _run(self):
        import select

        poll = select.poll()
        of = {connection.socket: connection for connection in self._connections}
        for descriptor in of:
            poll.register(descriptor, select.POLLIN)
        while not self._ended.is_set():
            for descriptor, _ in poll.poll(50):
                at = time.monotonic()
                connection = of[descriptor]
                connection.consume_input()
                while connection.notifies() is not None:
                    self.heard.setdefault(descriptor, []).append(at)
            self._spent = time.thread_time()

    def close(self):
        self._ended.set()
        self._thread.join()
        for connection in self._connections:
            connection.finish()


def burst(seen, connect, senders, seconds):
    ended, counts = threading.Event(), [0] * senders
    word = bound(sql.NOTIFY, {"payload": json.dumps([uuid4() for _ in range(8)])})

    def run(number):
        session = connect()
        while not ended.is_set():
            session.one(word)
            counts[number] += 1
        session.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(senders)]
    cpu, began = seen.cpu(), time.monotonic()
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    used, wall, made = sum(spent(cpu, seen.cpu()).values()), time.monotonic() - began, sum(counts)
    ended.set()
    for thread in threads:
        thread.join()
    return made / wall, used / made * 1e6


def rows(seconds):
    """What turns leave behind: rows, bytes, dead rows, and which updates touch no index."""
    with watched() as (seen, connect):
        store, source, made = store_on(connect), groups_of(32), 0
        wal, beat = seen.wal(), 0.0
        while made < UNITS * round(seconds * 8):
            written(store, next(source))
            made += 1
            if time.monotonic() - beat > 0.05:  # a gateway does so every third of a lease; here more often, to see its rows
                beat = time.monotonic()
                now = time.time_ns() // 1_000_000
                written(store, [one((Heartbeat("process-1", now + 10_000, now),))])
        store.close()
        turns = made * 32 // UNITS
        seen.connection.execute("SELECT pg_stat_force_next_flush()")
        time.sleep(1)
        updates = {
            name: {"per_turn": changed / turns, "hot": hot / changed, "dead": dead}
            for name, changed, hot, dead in seen.all(
                "SELECT relname, n_tup_upd, n_tup_hot_upd, n_dead_tup FROM pg_stat_user_tables WHERE n_tup_upd > 0 ORDER BY 1"
            )
        }
        seen.connection.execute("VACUUM (ANALYZE)")
        found = {
            "turns": turns, "groups": made, "wal_bytes_per_turn": (seen.wal() - wal) / turns, "updates": updates,
            "bytes_per_turn": {
                name: {"rows": round(size["rows"] / turns, 2), "heap": round(size["heap"] / turns), "indexes": round(size["indexes"] / turns)}
                for name, size in seen.sizes().items()
                if size["rows"] >= turns / 2
            },
            "writer_bytes": seen.one("SELECT pg_table_size('ledger_writer')")[0],
            "process_bytes": seen.one("SELECT pg_table_size('process')")[0],
            "autovacuums": dict(seen.all("SELECT relname, autovacuum_count FROM pg_stat_user_tables WHERE autovacuum_count > 0")),
        }  # fmt: skip
    for name, each in found["bytes_per_turn"].items():
        show("{name}: {rows} rows, {heap} B, indexes {indexes} B a turn", {"name": name, **each})
    for name, each in found["updates"].items():
        show("{name}: {per_turn:.2f} updates a turn, {hot:.0%} of them HOT, {dead} dead rows", {"name": name, **each})
    show("{turns} turns; ledger_writer {writer_bytes} B, process {process_bytes} B, autovacuums {autovacuums}", found)
    return found


def snapshot(seconds):
    """Groups of one unit while a snapshot is held, as pg_dump holds one: no older row can be cleaned. Without waiting for the disk."""
    found = []
    with watched({**SETTINGS, "synchronous_commit": "off"}) as (seen, connect):
        store, source = store_on(connect), groups_of(1)
        holder = psycopg.connect(seen.server.url())
        for _ in range(UNITS):
            written(store, next(source))
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM event")
        held, made, row = True, 0, "one"
        while True:
            cpu, at, count = seen.cpu(), time.monotonic(), 0
            while count < UNITS * round(seconds * 60):
                written(store, next(source))
                count += 1
            made += count
            used, wall = sum(spent(cpu, seen.cpu()).values()), time.monotonic() - at
            query = time.monotonic()
            seen.one("SELECT CAST(coalesce(sum(number), 0) + count(*) AS bigint) FROM ledger_writer")
            query = time.monotonic() - query
            found.append({"held": held, "row": row, "groups": made, "server_us_per_group": used / count * 1e6, "ms_per_group": wall / count * 1e3,
                          "writer_bytes": seen.one("SELECT pg_table_size('ledger_writer')")[0], "version_ms": query * 1e3})  # fmt: skip
            show("held {held}, row {row}, {groups} groups: server {server_us_per_group:.0f} us a group, {ms_per_group:.2f} ms, ledger_writer {writer_bytes} B, VERSION {version_ms:.2f} ms", found[-1])
            if not held:
                break
            if len(found) in (2, 4):
                # As 20,000 groups would, in one statement.
                seen.connection.execute("DO $$ BEGIN FOR _ IN 1..20000 LOOP UPDATE ledger_writer SET number = number, seen_at = seen_at; COMMIT; END LOOP; END $$")
                made += 20_000
            if len(found) == 5:  # another writer has a row of its own, which has no older versions yet
                store.close()
                store, row = store_on(connect), "another"
                for _ in range(UNITS):
                    written(store, next(source))
            if len(found) == 6:
                holder.rollback()
                held = False
                for _ in range(UNITS):
                    written(store, next(source))
        holder.close()
        store.close()
    return found


def size(seconds, events=1_000_000):
    """Reads at a size. Turns are copied inside the server, which is faster than writing them; their ids are spread as random ids are."""
    found = []
    with watched({**SETTINGS, "autovacuum": "off"}) as (seen, connect):
        store, source = store_on(connect), groups_of(32)
        while seen.one("SELECT count(*) FROM task")[0] < 500:
            for _ in range(UNITS):
                written(store, next(source))
        store.close()
        session = connect()
        target = 100_000
        while target <= events:
            _fill(seen, target)
            seen.connection.execute("VACUUM ANALYZE")
            ids = [row[0] for row in seen.all("SELECT id FROM task ORDER BY random() LIMIT 300")]
            waits = []
            read = sql.prepared("EVENTS", sql.TEXTS["EVENTS"])
            for task in ids:
                at = time.monotonic()
                session.one(bound(read, {"task": task, "after": 0}))
                waits.append(time.monotonic() - at)
            sizes = seen.one("SELECT count(*), pg_table_size('event'), pg_indexes_size('event') FROM event")
            seen.connection.execute("CHECKPOINT")
            writer, wal, cpu, made = store_on(connect), seen.wal(), seen.cpu(), 0
            for made in range(1, UNITS * 4 + 1):
                written(writer, next(source))
            written_us, wal = sum(spent(cpu, seen.cpu()).values()) * 1e6 / made / 32, (seen.wal() - wal) / (made * 32 / UNITS)
            writer.close()
            plan = seen.connection.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT first, last, payload FROM event WHERE task = %s AND last > 0 ORDER BY last", [ids[0]]).fetchone()[0][0]["Plan"]
            pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            seen.connection.execute("CREATE EXTENSION IF NOT EXISTS pgstattuple")
            depth = seen.one("SELECT tree_level, leaf_pages, avg_leaf_density FROM pgstatindex('pk_event')")
            found.append({"events": sizes[0], "heap_per_event": sizes[1] / sizes[0], "index_per_event": sizes[2] / sizes[0], "read_ms_p50": statistics.median(waits) * 1e3,
                          "read_ms_p99": percentile(waits, 0.99) * 1e3, "pages": pages, "server_us_per_unit": written_us, "wal_bytes_per_turn_after_checkpoint": wal, "levels": depth[0] + 1, "events_per_leaf": sizes[0] / depth[1], "density": depth[2],
                          "database_per_event": seen.one("SELECT pg_database_size(current_database())")[0] / sizes[0]})  # fmt: skip
            show("{events} events: {heap_per_event:.0f} B an event, its index {index_per_event:.0f} B (levels {levels}, {events_per_leaf:.0f} a page), whole log of a task p50 {read_ms_p50:.2f} ms, p99 {read_ms_p99:.2f}, {pages} pages; 128 turns in groups of 32 behind a checkpoint: server {server_us_per_unit:.0f} us a unit, WAL {wal_bytes_per_turn_after_checkpoint:.0f} B a turn", found[-1])
            target = min(target * 3, events) if target < events else events + 1
        session.close()
    return found


def _fill(seen, target):
    """Copies tasks and their events until there are so many events."""
    present = seen.one("SELECT count(*) FROM event")[0]
    copies = max(0, (target - present) // (500 * (DELTAS + 1)))
    with psycopg.connect(seen.server.url()) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("CREATE TEMP TABLE sample AS SELECT * FROM task LIMIT 500")
        connection.execute("CREATE TEMP TABLE sample_event AS SELECT event.* FROM event JOIN sample ON task = sample.id")
        for _ in range(copies):
            # Each copy begins with 16 bits of its own, as the ids of one process and a thousand tasks do.
            head = f"{random.getrandbits(16):04x}"
            connection.execute("CREATE TEMP TABLE copied ON COMMIT DROP AS SELECT id AS old, %s || substr(gen_random_uuid()::text, 5) AS fresh FROM sample", [head])
            connection.execute(
                "INSERT INTO task SELECT c.fresh, context, tenant, principal, agent, visible, created_at, last_event, state, status_at, status_message "
                "FROM sample JOIN copied c ON c.old = sample.id"
            )
            connection.execute(
                "INSERT INTO event SELECT c.fresh, e.last, e.first, replace(e.payload, c.old, c.fresh) FROM copied c JOIN sample_event e ON e.task = c.old ORDER BY e.last, c.fresh"
            )
            connection.execute("DROP TABLE copied")


def writers(seconds):
    """So many processes that write without a pause, each in groups of 8. Medians of interleaved rounds."""
    rounds = {many: [] for many in (1, 2, 4, 8)}
    with watched() as (seen, connect):
        for _ in range(3):
            for many, found in rounds.items():
                found.append(_wrote(seen, connect, many, seconds))
    found = [{name: statistics.median(each[name] for each in figures) for name in figures[0]} for figures in rounds.values()]
    for each in found:
        show("{writers} writers: {groups_per_s:.0f} groups/s, server {server_us_per_group:.0f} us a group ({server_cores:.2f} cores), clients {client_us_per_group:.0f} ({client_cores:.2f}), "
             "{syncs_per_group:.2f} syncs a group, p50 {ms_p50:.2f} ms, p99 {ms_p99:.2f}", each)  # fmt: skip
    return found


def _wrote(seen, connect, many, seconds):
    processes = multiprocessing.get_context("fork")
    ready, results = processes.Barrier(many + 1), processes.Queue()

    def run():
        store, source, latencies = store_on(connect), groups_of(8), []
        for _ in range(UNITS):
            written(store, next(source))
        ready.wait()
        began, own = time.monotonic(), time.process_time()
        while time.monotonic() - began < seconds:
            units = next(source)
            at = time.monotonic()
            written(store, units)
            latencies.append(time.monotonic() - at)
        results.put((latencies, time.process_time() - own))
        ready.wait()
        store.close()

    writers = [processes.Process(target=run) for _ in range(many)]
    for each in writers:
        each.start()
    ready.wait()
    cpu, syncs, began = seen.cpu(), _syncs(seen), time.monotonic()
    told = [results.get() for _ in writers]
    used, wall, syncs = sum(spent(cpu, seen.cpu()).values()), time.monotonic() - began, _syncs(seen) - syncs
    ready.wait()
    for each in writers:
        each.join()
    latencies, own = [one for each, _ in told for one in each], sum(own for _, own in told)
    made = len(latencies)
    return {
        "writers": many, "groups_per_s": made / wall, "server_us_per_group": used / made * 1e6, "client_us_per_group": own / made * 1e6,
        "server_cores": used / wall, "client_cores": own / wall, "syncs_per_group": syncs / made,
        "ms_p50": statistics.median(latencies) * 1e3, "ms_p99": percentile(latencies, 0.99) * 1e3,
    }  # fmt: skip


def connections(seconds):
    """What a connection takes of the server's memory: pages that are its own."""
    found = []
    with watched() as (seen, connect):
        store, source = store_on(connect), groups_of(8)
        for _ in range(UNITS * 2):
            written(store, next(source))
        sessions = [connect() for _ in range(10)]
        read = sql.prepared("EVENTS", sql.TEXTS["EVENTS"])
        for session in sessions:
            session.one(bound(sql.VERSION, {}))
            session.one(bound(read, {"task": "none", "after": 0}))
        for kind, pid in [("writer", None), ("reader", sessions[0].one(bound(sql.plain("SELECT pg_backend_pid()"), {}))[0][0])]:
            pid = pid or seen.one("SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT pg_notify%%' LIMIT 1")[0]
            own = sum(int(line.split()[1]) for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() if line.startswith(("Private_Dirty", "Private_Clean")))
            found.append({"kind": kind, "private_kib": own})
            show("{kind}: {private_kib} KiB of its own", found[-1])
        for session in sessions:
            session.close()
        store.close()
    return found


def gateway(seconds):
    """A whole gateway, with an agent in Python whose 20 deltas come 10 ms apart, alone and with connections that listen as other replicas do."""
    return asyncio.run(_gateway(seconds))


async def _gateway(seconds):
    import tempfile

    import httpx2

    from gateway.app.application import running
    from gateway.cli.serve.sources import read_composed
    from gateway.config.plugins import Registry

    found = []
    with watched({**SETTINGS, "full_page_writes": "off"}) as (seen, _), tempfile.TemporaryDirectory() as folder:
        agent = pathlib.Path(folder) / "agent.py"
        agent.write_text("import asyncio\nasync def reply(turn):\n    for n in range(20):\n        yield f'tok{n} '\n        await asyncio.sleep(0.01)\n")
        text = f"version: 1\nlogs: {{level: error}}\nstorage: {{url: '{seen.server.url()}'}}\nagents:\n  a: {{type: python, ref: '{agent}:reply'}}\n"
        async with running(read_composed(text, {}, pathlib.Path(folder)), Registry()) as made:
            transport = httpx2.ASGITransport(app=made.app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost:8080", timeout=60) as client:

                async def send(number):
                    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": {"role": "ROLE_USER", "messageId": f"m{number}", "parts": [{"text": "hi"}]}}}
                    answer = await client.post("/a2a/a", headers={"A2A-Version": "1.0"}, json=body)
                    if "result" not in answer.json():
                        raise RuntimeError(answer.text)

                async def turns(rate, count):
                    began = asyncio.get_running_loop().time()
                    async with asyncio.TaskGroup() as group:
                        for number in range(count):
                            await asyncio.sleep(max(0.0, began + number / rate - asyncio.get_running_loop().time()))
                            group.create_task(send(number))

                await turns(10, 10)
                for rate, others in ((5, 0), (20, 0), (20, 30), (40, 0)):
                    ear = Ear(seen.server.url(), others, sql._CHANNEL)
                    count = round(rate * seconds * 2)
                    before, cpu, wal, rows_, mine, began = _written(seen), seen.cpu(), seen.wal(), seen.one("SELECT count(*) FROM event")[0], time.process_time(), time.monotonic()
                    await turns(rate, count)
                    wall, groups_, used = time.monotonic() - began, _written(seen) - before, sum(spent(cpu, seen.cpu()).values())
                    units = seen.one("SELECT count(*) FROM event")[0] - rows_ + count
                    ear.close()
                    found.append({"others": others, "turns_per_s": count / wall, "units_per_turn": units / count, "units_per_s": units / wall, "units_per_group": units / groups_, "groups_per_turn": groups_ / count,
                                  "server_us_per_turn": used / count * 1e6, "gateway_us_per_turn": (time.process_time() - mine) / count * 1e6, "wal_bytes_per_turn": (seen.wal() - wal) / count})  # fmt: skip
                    show("{turns_per_s:.1f} turns/s, {others} other listeners: {units_per_turn:.1f} units a turn, {units_per_group:.2f} units a group, server {server_us_per_turn:.0f} us a turn, this process {gateway_us_per_turn:.0f}, WAL {wal_bytes_per_turn:.0f} B a turn", found[-1])
    return found


def _written(seen):
    return int(seen.one("SELECT sum(number) FROM ledger_writer")[0])


def _syncs(seen):
    seen.connection.execute("SELECT pg_stat_force_next_flush()")
    return seen.one("SELECT wal_sync FROM pg_stat_wal")[0]


PARTS = {part.__name__: part for part in (groups, without, notify, rows, snapshot, size, writers, connections, gateway)}


def show(text, values):
    print("  " + (text.format(**values) if isinstance(values, dict) else text.format(*values)), flush=True)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the server ends with it
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each figure")
    parser.add_argument("--out", type=pathlib.Path, help="a file of JSON, in which other parts are kept")
    options = parser.parse_args()
    for name in options.parts:
        print(f"{name}: {PARTS[name].__doc__.splitlines()[0]}", flush=True)
        found = PARTS[name](options.seconds)
        if options.out:
            kept = json.loads(options.out.read_text()) if options.out.exists() else {}
            kept[name] = {"date": time.strftime("%F"), "cores": os.cpu_count(), "load": os.getloadavg()[0], "found": found}
            options.out.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
