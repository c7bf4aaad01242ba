"""A closed loop of SendStreamingMessage by gRPC, run by the python of the environment `a2a`. Prints what a2aload prints, as far as it knows.

    grpc_load.py ADDRESS PIDS DIRECTIVE --tenant AGENT --conns N --duration S --warmup S

Only the CPU of the processes PIDS counts: this generator is slower than the servers that it measures.
"""
import argparse
import asyncio
import json
import time
import uuid

import grpc
from a2a.types import a2a_pb2

METHOD = "/lf.a2a.v1.A2AService/SendStreamingMessage"


def cpu_seconds(pids):
    total = 0.0
    for pid in pids:
        fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / 100
    return total


async def main(o):
    pids = [int(p) for p in o.pids.split(",") if p]
    counts = {"done": 0, "ok": 0, "events": 0}
    first_error = ""
    stop = False

    async def one(call):
        nonlocal first_error
        request = a2a_pb2.SendMessageRequest(
            tenant=o.tenant, message=a2a_pb2.Message(message_id=str(uuid.uuid4()), role=a2a_pb2.ROLE_USER, parts=[a2a_pb2.Part(text=f"bench [[mock {o.directive}]]")])
        )
        last, events = None, 0
        try:
            async for payload in call(request.SerializeToString(), metadata=(("a2a-version", "1.0"),)):
                last, events = payload, events + 1
        except grpc.aio.AioRpcError as error:
            first_error = first_error or f"{error.code()} {error.details()}"
        counts["done"] += 1
        counts["events"] += events
        if last and a2a_pb2.StreamResponse.FromString(last).status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED:
            counts["ok"] += 1

    async def worker():
        # A channel each, as the connections of the other generator.
        async with grpc.aio.insecure_channel(o.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            call = channel.unary_stream(METHOD)
            while not stop:
                await one(call)

    async with asyncio.TaskGroup() as group:
        for _ in range(o.conns):
            group.create_task(worker())
        await asyncio.sleep(o.warmup)
        counts.update(done=0, ok=0, events=0)
        cpu, own, began = cpu_seconds(pids), time.process_time(), time.monotonic()
        await asyncio.sleep(o.duration)
        r, wall = dict(counts), time.monotonic() - began
        used, gen = cpu_seconds(pids) - cpu, time.process_time() - own
        stop = True
    r |= {
        "seconds": wall, "rps": round(r["done"] / wall, 1), "events_per_s": round(r["events"] / wall, 1), "cpu_s": used, "cpu_share": round(used / wall, 3),
        "cpu_us_per_request": round(1e6 * used / max(1, r["done"]), 1), "cpu_us_per_event": round(1e6 * used / max(1, r["events"]), 2),
        "gen_cpu_share": round(gen / wall, 3), "first_error": first_error, "net_errors": int(bool(first_error)),
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
asyncio.run(main(p.parse_args()))
