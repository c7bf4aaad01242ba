"""The load of a soak: conversations at a steady rate, by a client that costs little CPU and checks how every turn ends.

Open loop: a turn starts when it is due, whether or not those before it have ended, unless too many are under way.
"""
import asyncio
import collections
import json
import random
import re
import time
import uuid

import grpc
from a2a.types import a2a_pb2
from google.protobuf.json_format import ParseDict
from stack.rawclient import Connection

FINAL = re.compile(rb'"state":"TASK_STATE_(COMPLETED|FAILED|CANCELED|REJECTED)"')
OLD_FINAL = re.compile(rb'"state":"(completed|failed|canceled|rejected)"')
OLD_TASK = re.compile(rb'"kind":"task","id":"([^"]+)"')
TASK = re.compile(rb'"task":\{"id":"([^"]+)"')
POSTED = re.compile(rb'"taskId":"([^"]+)"')
NUMBER = re.compile(rb"^id: (\d+)$", re.M)
IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d\d\d\d-\d\d-\d\dT[\d:.]+Z")

AT_ONCE = 300
"""Turns under way; more are not started, and the rate falls instead."""

STALE = 2
"""Seconds after which an idle connection is not used again: the gateway closes it after 5."""

KEPT_OPEN = 100
"""Conversations that wait for their next turn, one after the other."""

TURNS = {  # what a message asks of the mock, how often of 100, how its task has to end
    "send": (28, "n=10 gap=0", "COMPLETED"),
    "stream": (22, "n=20 gap=2000", "COMPLETED"),
    "rest": (6, "n=20 gap=2000", "COMPLETED"),
    "old": (6, "n=20 gap=2000", "COMPLETED"),
    "old_rest": (4, "n=10 gap=0", "COMPLETED"),
    "grpc": (8, "n=20 gap=2000", "COMPLETED"),
    "resume": (7, "n=20 gap=5000", "COMPLETED"),
    "leave": (3, "n=20 gap=5000", "COMPLETED"),
    "cancel": (4, "n=100 gap=20000", "CANCELED"),
    "big": (3, "n=20 gap=0 bytes=4096", "COMPLETED"),
    "pushed": (4, "n=4 gap=0", "COMPLETED"),
    "cut": (3, "n=20 gap=0 cut=5", "FAILED"),
    "refused": (2, "status=500", "FAILED"),
}
TOOLS = "n=0 gap=0 tools=2 then=1"  # send, stream, resume and leave of the agent with tools
AGENTS = {"backend": 60, "local": 28, "tools": 12}


class Unexpected(Exception):
    """A turn did not end as it has to."""


class Client:
    """HTTP/1.1 with a pool of connections, and no more of it than a soak needs."""

    def __init__(self, port):
        self.port, self.idle = port, []

    async def open(self):
        while self.idle:
            c, since = self.idle.pop()
            if not c.closed and time.monotonic() - since < STALE:
                return c
            c.transport.close()
        return (await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", self.port))[1]

    async def parts(self, method, path, body=b"", headers=(), version="1.0"):
        """The status, then the body in pieces. Closing it early closes the connection."""
        c = await self.open()
        more = "".join(f"{k}: {v}\r\n" for k, v in headers)
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nA2A-Version: {version}\r\nContent-Type: application/json\r\n{more}Content-Length: {len(body)}\r\n\r\n"
        c.transport.write(head.encode() + body)
        done = False
        try:
            while (end := c.buffer.find(b"\r\n\r\n")) < 0:
                await c.more()
            head, c.buffer = c.buffer[:end].lower(), c.buffer[end + 4 :]
            yield int(head[9:12])
            if b"transfer-encoding: chunked" in head:
                while not done:
                    data, at, out = c.buffer, 0, []
                    while (nl := data.find(b"\r\n", at)) >= 0 and len(data) >= nl + 4 + (size := int(data[at:nl], 16)):
                        at = nl + 4 + size
                        if size == 0:
                            done = True
                            break
                        out.append(data[nl + 2 : nl + 2 + size])
                    c.buffer = data[at:]
                    if out:
                        yield b"".join(out)
                    if not done:
                        await c.more()
            else:
                left = int(head[head.find(b"content-length:") + 15 :].split(b"\r\n", 1)[0])
                while len(c.buffer) < left:
                    await c.more()
                data, c.buffer = c.buffer[:left], c.buffer[left:]
                done = True
                yield data
        finally:
            if done and not c.closed:
                self.idle.append((c, time.monotonic()))
            else:
                c.transport.close()

    async def request(self, method, path, body=b"", headers=(), version="1.0"):
        parts = [part async for part in self.parts(method, path, body, headers, version)]
        return parts[0], b"".join(parts[1:])

    async def call(self, agent, method, params):
        """The body of the answer, a result or an error."""
        return (await self.request("POST", f"/a2a/{agent}", rpc(method, params)))[1]

    async def stream(self, agent, method, params, headers=(), version="1.0"):
        """Events, as bytes with their number in front."""
        async for event in self.events(f"/a2a/{agent}", rpc(method, params), headers, version):
            yield event

    async def events(self, path, body, headers=(), version="1.0"):
        rest, source = b"", self.parts("POST", path, body, headers, version)
        try:
            status = await anext(source)
            async for part in source:
                *events, rest = (rest + part).split(b"\n\n")
                for event in events:
                    if not event.startswith(b":"):  # a sign of life
                        yield event
            if status != 200 or rest.strip():
                yield rest  # an error instead of events
        finally:
            await source.aclose()


class Receiver(asyncio.Protocol):
    """Takes notifications. `waited` has a future for each task whose end is to come, `transports` what is open."""

    waited, transports = {}, set()

    def connection_made(self, transport):
        self.transport, self.buffer = transport, b""
        self.transports.add(transport)

    def connection_lost(self, _):
        self.transports.discard(self.transport)

    def data_received(self, data):
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            size = int(head[head.find(b"content-length:") + 15 :].split(b"\r\n", 1)[0])
            if len(self.buffer) < end + 4 + size:
                return
            body, self.buffer = self.buffer[end + 4 : end + 4 + size], self.buffer[end + 4 + size :]
            if (state := state_of(body)) and (found := POSTED.search(body)):
                future = self.waited.setdefault(found[1].decode(), asyncio.get_running_loop().create_future())
                if not future.done():
                    future.set_result(state)
            self.transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")


def rpc(method, params):
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


class Conversation:
    def __init__(self):
        self.id = str(uuid.uuid4())
        self.agent = random.choices(*zip(*AGENTS.items(), strict=True))[0]
        self.left = random.randint(1, 30)


class Load:
    """`run` for as long as it goes; the counters are read meanwhile."""

    def __init__(self, port, grpc_port, rate):
        self.client, self.rate = Client(port), rate
        self.grpc_address = f"127.0.0.1:{grpc_port}"
        self.open = collections.deque()
        self.under_way = set()
        self.ok = self.failed = self.late = self.others = 0
        """`late`: turns that were due and not started. `others`: requests beside them."""
        self.kinds, self.reasons = collections.Counter(), collections.Counter()
        self.latencies = []
        """Seconds of each blocking send, from when it was due."""

    async def run(self, seconds):
        receiver = await asyncio.get_running_loop().create_server(Receiver, "127.0.0.1", 0)
        self.receiver = f"http://127.0.0.1:{receiver.sockets[0].getsockname()[1]}/"
        try:
            async with grpc.aio.insecure_channel(self.grpc_address) as channel:
                self.by_grpc = channel.unary_stream(
                    "/lf.a2a.v1.A2AService/SendStreamingMessage",
                    a2a_pb2.SendMessageRequest.SerializeToString,
                    a2a_pb2.StreamResponse.FromString,
                )
                await self.start(seconds)
        finally:
            receiver.close()
            for transport in list(Receiver.transports):
                transport.close()

    async def start(self, seconds):
        due = time.monotonic()
        end = due + seconds
        while due < end:
            now = time.monotonic()
            if now < due:
                await asyncio.sleep(due - now)
            elif now - due > 1:
                due = now  # what was not started in time is not caught up with
            if len(self.under_way) >= AT_ONCE:
                self.late += 1
            else:
                task = asyncio.create_task(self.turn(due))
                self.under_way.add(task)
                task.add_done_callback(self.under_way.discard)
            due += 1 / self.rate
        if self.under_way:
            await asyncio.wait(self.under_way, timeout=60)

    async def turn(self, due):
        conversation = self.open.popleft() if len(self.open) >= KEPT_OPEN else Conversation()
        kinds = list(TURNS) if conversation.agent != "tools" else ["send", "stream", "resume", "leave"]
        kind = random.choices(kinds, [TURNS[each][0] for each in kinds])[0]
        self.kinds[f"{conversation.agent} {kind}"] += 1
        try:
            async with asyncio.timeout(60):
                await self.converse(conversation, kind, due)
        except Exception as error:  # noqa: BLE001 - counted, and the soak goes on
            self.failed += 1
            self.reasons[f"{conversation.agent} {kind}: {type(error).__name__} {IDS.sub('...', str(error))}"[:400]] += 1
            return
        self.ok += 1
        conversation.left -= 1
        if conversation.left > 0:
            self.open.append(conversation)

    async def converse(self, conversation, kind, due):
        _, plan, end = TURNS[kind]
        plan = TOOLS if conversation.agent == "tools" else plan
        message = {"messageId": str(uuid.uuid4()), "contextId": conversation.id, "role": "ROLE_USER", "parts": [{"text": f"soak [[mock {plan}]]"}]}
        agent, params = conversation.agent, {"message": message}
        if kind in ("stream", "resume", "leave", "cancel", "pushed", "rest", "old", "old_rest", "grpc"):
            task, state = await getattr(self, kind)(agent, params)
        else:
            answer = await self.client.call(agent, "SendMessage", params)
            task, state = task_of(answer), state_of(answer)
            if kind == "send":
                self.latencies.append(time.monotonic() - due)
        if state != end and (kind, state) != ("cancel", "COMPLETED"):  # `cancel` has looked whether it came too late
            raise Unexpected(f"{state} instead of {end}")
        await self.afterwards(conversation, task, state)

    async def stream(self, agent, params):
        task, state, expected = "", "", 0
        async for event in self.client.stream(agent, "SendStreamingMessage", params):
            task = task or task_of(event)
            expected = follow(event, expected)
            state = state_of(event) or state
        return task, state

    async def rest(self, agent, params):
        task, state, expected = "", "", 0
        async for event in self.client.events(f"/a2a/{agent}/message:stream", json.dumps(params).encode()):
            task = task or task_of(event)
            expected = follow(event, expected)
            state = state_of(event) or state
        return task, state

    async def old(self, agent, params):
        """A stream of A2A 0.3."""
        message = old_message(params["message"])
        task, state, expected = "", "", 0
        async for event in self.client.stream(agent, "message/stream", {"message": message}, version="0.3"):
            task = task or OLD_TASK.search(event)[1].decode()
            expected = follow(event, expected)
            state = found[-1].decode().upper() if (found := OLD_FINAL.findall(event)) else state
        return task, state

    async def old_rest(self, agent, params):
        """A blocking message of A2A 0.3 by HTTP+JSON."""
        body = json.dumps({"message": old_message(params["message"]), "configuration": {"blocking": True}}).encode()
        answer = (await self.client.request("POST", f"/a2a/{agent}/v1/message:send", body, version="0.3"))[1]
        return task_of(answer), state_of(answer)

    async def grpc(self, agent, params):
        task = state = ""
        request = ParseDict(params | {"tenant": agent}, a2a_pb2.SendMessageRequest())
        async for event in self.by_grpc(request, metadata=(("a2a-version", "1.0"),)):
            task = task or event.task.id
            if event.status_update.status.state:
                state = a2a_pb2.TaskState.Name(event.status_update.status.state).removeprefix("TASK_STATE_")
        return task, state

    async def pushed(self, agent, params):
        """Waits for the notification of the end."""
        configuration = {"taskPushNotificationConfig": {"url": self.receiver, "token": "a token"}}
        task = task_of(await self.client.call(agent, "SendMessage", params | {"configuration": configuration}))
        future = Receiver.waited.setdefault(task, asyncio.get_running_loop().create_future())
        try:
            return task, await asyncio.wait_for(future, 30)
        finally:
            del Receiver.waited[task]

    async def begin(self, agent, params, events):
        """Leaves a stream after so many events. Returns the task."""
        task, seen = "", 0
        source = self.client.stream(agent, "SendStreamingMessage", params)
        try:
            async for event in source:
                task = task or task_of(event)
                seen += 1
                if seen == events:
                    break
        finally:
            await source.aclose()
        return task

    async def resume(self, agent, params):
        """Leaves a stream and comes back, half of the time from where it was."""
        task = await self.begin(agent, params, 3)
        known = random.random() < 0.5
        expected, state, headers = 3, "", [("Last-Event-ID", "2")] if known else []
        async for event in self.client.stream(agent, "SubscribeToTask", {"id": task}, headers):
            if known and not TASK.search(event):  # it begins with the task as it is, which has no number
                expected = follow(event, expected)
            state = state_of(event) or state
        return task, state or state_of(await self.client.call(agent, "GetTask", {"id": task}))

    async def leave(self, agent, params):
        """Goes away, and looks later what has become of it."""
        task = await self.begin(agent, params, 1)
        for _ in range(100):
            await asyncio.sleep(0.3)
            if state := state_of(await self.client.call(agent, "GetTask", {"id": task})):
                return task, state
        return task, "no end"

    async def cancel(self, agent, params):
        source = self.client.stream(agent, "SendStreamingMessage", params)
        task = state = ""
        seen = expected = 0
        asked = None
        try:
            async for event in source:
                task = task or task_of(event)
                seen += 1
                expected = follow(event, expected)
                state = state_of(event) or state
                if seen == 3:
                    asked = asyncio.create_task(self.client.call(agent, "CancelTask", {"id": task}))
        finally:
            await source.aclose()
            answer = await asked if asked else b""
        too_late = b"-32002" in answer and state == "COMPLETED"
        if state_of(answer) != "CANCELED" and not too_late:
            raise Unexpected(f"CancelTask says {answer[:200]!r}")
        return task, state

    async def afterwards(self, conversation, task, state):
        """What else callers do: they look, list, and some delete what they are done with."""
        agent = conversation.agent
        if random.random() < 0.2:
            self.others += 1
            if state_of(answer := await self.client.call(agent, "GetTask", {"id": task})) != state:
                raise Unexpected(f"GetTask of a task that is {state} says {answer[:200]!r}")
        if random.random() < 0.05:
            self.others += 1
            params = {"pageSize": 20} | ({"contextId": conversation.id} if random.random() < 0.8 else {})
            if b'"totalSize"' not in (answer := await self.client.call(agent, "ListTasks", params)):
                raise Unexpected(f"ListTasks says {answer[:200]!r}")
        if conversation.left == 1 and random.random() < 0.5:
            self.others += 1
            status, answer = await self.client.request("DELETE", f"/admin/api/v1/contexts/{conversation.id}")
            if status != 204:
                raise Unexpected(f"deleting a context says {status} {answer[:200]!r}")


def old_message(message):
    """The same message in A2A 0.3."""
    return message | {"kind": "message", "role": "user", "parts": [{"kind": "text", **part} for part in message["parts"]]}


def task_of(data):
    if found := TASK.search(data):
        return found[1].decode()
    raise Unexpected(f"no task in {data[:200]!r}")


def state_of(data):
    """The last final state that is told, or nothing."""
    return found[-1].decode() if (found := FINAL.findall(data)) else ""


def follow(event, expected):
    """The number that the next event must have."""
    if not event.strip():
        return expected
    found = NUMBER.search(event)
    if not found or int(found[1]) != expected:
        raise Unexpected(f"event {expected} expected, not {event[:200]!r}")
    return expected + 1
