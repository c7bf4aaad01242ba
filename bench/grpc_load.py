"""A closed loop of SendStreamingMessage by gRPC, run by the python of the environment `a2a`. Prints what a2aload prints, as far as it knows.

    grpc_load.py ADDRESS PIDS DIRECTIVE --tenant AGENT --conns N --duration S --warmup S

It writes the frames of HTTP/2 by hand: a client of grpcio takes more CPU than the servers, which then wait for it, and a server that waits has fewer
streams to share a commit and a turn of its loop among. A stream of JSON-RPC at the rate of such a client costs 1.4 times as much, too.
"""
import argparse
import asyncio
import json
import struct
import time
import uuid

import uvloop
from a2a.types import a2a_pb2

METHOD = "/lf.a2a.v1.A2AService/SendStreamingMessage"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
WINDOW = 2**30  # more than one run sends


def cpu_seconds(pids):
    total = 0.0
    for pid in pids:
        fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / 100
    return total


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def literal(text):
    return bytes((len(text),)) + text.encode()


class Run:
    def __init__(self, o):
        self.o, self.stop, self.first_error = o, False, ""
        self.done = self.ok = self.events = 0


class Caller(asyncio.Protocol):
    """One call at a time on a connection of its own."""

    def __init__(self, run):
        self.run, self.stream, self.buffer = run, -1, b""
        fields = {":method": "POST", ":scheme": "http", ":path": METHOD, ":authority": run.o.address, "te": "trailers",
                  "content-type": "application/grpc", "user-agent": "grpc_load", "a2a-version": "1.0"}  # fmt: skip
        # The first call brings the texts, all others their numbers in the table of HPACK, whose newest entry is 62.
        self.first = b"".join(b"\x40" + literal(name) + literal(value) for name, value in fields.items())
        self.later = bytes(0x80 | 62 + at for at in reversed(range(len(fields))))

    def connection_made(self, transport):
        self.transport = transport
        transport.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, WINDOW)))
        transport.write(frame(WINDOW_UPDATE, 0, 0, WINDOW.to_bytes(4)))
        self.begin()

    def begin(self):
        headers = self.first if self.stream < 0 else self.later
        self.stream, self.events, self.rest, self.last = self.stream + 2, 0, b"", b""
        message = a2a_pb2.Message(message_id=str(uuid.uuid4()), role=a2a_pb2.ROLE_USER, parts=[a2a_pb2.Part(text=f"bench [[mock {self.run.o.directive}]]")])
        request = a2a_pb2.SendMessageRequest(tenant=self.run.o.tenant, message=message).SerializeToString()
        body = struct.pack(">BI", 0, len(request)) + request
        self.transport.write(frame(HEADERS, END_HEADERS, self.stream, headers) + frame(DATA, END_STREAM, self.stream, body))

    def data_received(self, data):
        data, at = self.buffer + data, 0
        while len(data) - at >= 9 and len(data) - at >= 9 + (size := int.from_bytes(data[at : at + 3])):
            kind, flags, payload = data[at + 3], data[at + 4], data[at + 9 : at + 9 + size]
            at += 9 + size
            if kind == DATA:
                self.count(payload)
            elif kind == SETTINGS and not flags & ACK:
                self.transport.write(frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                self.transport.write(frame(PING, ACK, 0, payload))
            elif kind in (RST_STREAM, GOAWAY):
                self.fail(f"frame {kind}: {payload!r}")
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                self.end()
        self.buffer = data[at:]

    def count(self, payload):
        data, at = self.rest + payload, 0
        while len(data) - at >= 5 and len(data) >= (end := at + 5 + int.from_bytes(data[at + 1 : at + 5])):
            self.last, at = data[at + 5 : end], end
            self.events += 1
        self.rest = data[at:]

    def end(self):
        self.run.done += 1
        self.run.events += self.events
        if self.last and a2a_pb2.StreamResponse.FromString(self.last).status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED:
            self.run.ok += 1
        if not self.run.stop:
            self.begin()

    def connection_lost(self, error):
        if not self.run.stop:
            self.fail(f"the connection was lost: {error!r}")

    def fail(self, what):
        self.run.first_error = self.run.first_error or what


async def main(o):
    pids = [int(p) for p in o.pids.split(",") if p]
    run, (host, _, port) = Run(o), o.address.rpartition(":")
    connections = [await asyncio.get_running_loop().create_connection(lambda: Caller(run), host, int(port)) for _ in range(o.conns)]
    await asyncio.sleep(o.warmup)
    run.done = run.ok = run.events = 0
    cpu, own, began = cpu_seconds(pids), time.process_time(), time.monotonic()
    await asyncio.sleep(o.duration)
    r, wall = {"done": run.done, "ok": run.ok, "events": run.events}, time.monotonic() - began
    used, gen = cpu_seconds(pids) - cpu, time.process_time() - own
    run.stop = True
    for transport, _ in connections:
        transport.close()
    r |= {
        "seconds": wall, "rps": round(r["done"] / wall, 1), "events_per_s": round(r["events"] / wall, 1), "cpu_s": used, "cpu_share": round(used / wall, 3),
        "cpu_us_per_request": round(1e6 * used / max(1, r["done"]), 1), "cpu_us_per_event": round(1e6 * used / max(1, r["events"]), 2),
        "gen_cpu_share": round(gen / wall, 3), "first_error": run.first_error, "net_errors": int(bool(run.first_error)),
    }  # fmt: skip
    print(json.dumps(r))


p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("address")
p.add_argument("pids")
p.add_argument("directive")
p.add_argument("--tenant", default="")
p.add_argument("--conns", type=int, default=16)
p.add_argument("--duration", type=float, default=3)
p.add_argument("--warmup", type=float, default=1)
uvloop.run(main(p.parse_args()))
