"""The endpoints of a LangGraph Agent Server that the adapter calls. Law: nothing is sent twice.

Source: langgraph-api 0.16.7, its API description.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar
from uuid import UUID, uuid4

import msgspec

from adapters.http.address import NO_SEGMENTS, id_segment
from adapters.http.client import HttpClient
from adapters.http.credentials.signing import headers_of, signing_of
from adapters.http.document import read_document
from adapters.http.named_events import ServerEvent
from adapters.http.streams import AnswerStream
from adapters.langgraph.failures import LangGraphFailures
from adapters.langgraph.settings import LangGraphSettings
from adapters.langgraph.wire import CONTEXT, Assistant, Message, Run, State, Thread, messages_of
from gateway.a2a.model import Json
from gateway.ports.adapter import AdapterError, ErrorClass

T = TypeVar("T")

_LARGEST = 64 * 1024 * 1024
_STATES = 1000
"""The server gives no more at once. A run makes a few for each of its steps."""
_RUNS = 100
_END = "__end__"
_FROM_FIRST = {"Last-Event-ID": "-1"}


class LangGraphService:
    """The client of one server."""

    def __init__(self, settings: LangGraphSettings, failures: LangGraphFailures) -> None:
        key = {"x-api-key": settings.key} if settings.key else {}
        signing = signing_of(settings.auth, failures, settings.timeouts, settings.route)
        self._http = HttpClient(
            settings.timeouts, failures, {**key, **headers_of(settings.auth)}, settings.route, signing
        )
        self._failures = failures
        self._url = settings.url
        self._assistant = settings.assistant
        self._run_fields = settings.run_fields
        self._metadata = settings.metadata
        self._thread_fields = settings.thread_fields
        self._expires = settings.thread_ttl is not None

    async def aclose(self) -> None:
        await self._http.aclose()

    async def make_thread(self) -> str:
        """The id of a new thread, which is made here, so that a repeated request makes no second one."""
        name = str(uuid4())
        made = await self._http.request_json("POST", f"{self._url}/threads", {"thread_id": name, **self._thread_fields})
        match made:
            case {"thread_id": str(given)} if given == name:
                return given
            case None:
                raise self._failures.error(ErrorClass.NOT_SERVED, "the server has no threads (HTTP 404)")
        raise self._failures.error(ErrorClass.CONTRACT_BROKEN, "a thread was made under another id")

    def begin_run(self, thread: str, context: str, fields: Mapping[str, Json]) -> AnswerStream[ServerEvent]:
        metadata = {**self._metadata, CONTEXT: context}
        body = msgspec.json.encode({**self._run_fields, "metadata": metadata, **fields})
        return self._http.events(f"{self._thread(thread)}/runs/stream", body, handle=thread)

    def join_run(self, thread: str, run: str) -> AnswerStream[ServerEvent]:
        """The events of a run from the first on, as far as the server still has them."""
        return self._http.events(f"{self._run(thread, run)}/stream", handle=thread, headers=_FROM_FIRST)

    async def status(self, thread: str, run: str) -> str | None:
        """The status of a run; None for one that is not there."""
        found = await self._whole("GET", self._run(thread, run), thread, Run)
        return None if found is None else found.status

    async def newest_runs(self, thread: str, limit: int = _RUNS) -> Sequence[Run]:
        query = f"limit={limit}&select=run_id&select=status&select=metadata"
        return await self._whole("GET", f"{self._thread(thread)}/runs?{query}", thread, list[Run]) or []

    async def interrupt(self, thread: str, run: str) -> None:
        """Asks a run to end; it does so a moment later."""
        await self._http.request_json("POST", f"{self._run(thread, run)}/cancel?action=interrupt", handle=thread)

    async def cancel(self, thread: str, run: str) -> bool:
        """Whether the run was at work, and has ended now."""
        url = f"{self._run(thread, run)}/cancel?wait=true&action=interrupt"
        return await self._http.request_json("POST", url, handle=thread) is not None

    async def thread(self, name: str) -> Thread:
        """Raises: AdapterError, with HANDLE_NOT_FOUND or HANDLE_EXPIRED for a thread that is not there."""
        found = await self._whole("GET", self._thread(name), name, Thread)
        if found is None:
            raise self.lost(name)
        return found

    async def drop_interrupts(self, name: str) -> None:
        """Ends what the thread waits for; its graph begins anew with the next input. Raises: AdapterError, with LOCKED while a
        run is at work."""
        body = {"values": None, "as_node": _END}
        await self._http.request_json("POST", f"{self._thread(name)}/state", body, handle=name)

    async def added(self, thread: Thread, name: str, run: str, key: str) -> Sequence[Message]:
        """The messages of the thread that this run has added. Raises: AdapterError."""
        query = msgspec.json.encode({"limit": _STATES, "metadata": {"run_id": run}})
        states = await self._whole("POST", f"{self._thread(name)}/history", name, list[State], query) or []
        first = states[-1].parent_checkpoint if states else None
        known: frozenset[str | None] = frozenset()
        if first is not None and first.checkpoint_id is not None:
            known = await self._messages_at(name, first.checkpoint_id, key)
        return [message for message in thread.messages(key) if message.id not in known]

    async def delete_thread(self, name: str) -> None:
        if is_uuid(name):
            await self._http.request_json("DELETE", self._thread(name), handle=name)

    async def version(self) -> str | None:
        match await self._http.request_json("GET", f"{self._url}/info"):
            case {"version": str(version)}:
                return version
        return None

    async def assistant(self) -> Assistant:
        """That of the settings; of a graph its first, which answers under the name of the graph. Raises: AdapterError."""
        if is_uuid(self._assistant):
            found = await self._http.request_json("GET", f"{self._url}/assistants/{self._assistant}")
            listed = [] if found is None else [found]
        else:
            query = {"graph_id": self._assistant, "limit": 1, "sort_by": "created_at", "sort_order": "asc"}
            listed = await self._http.request_json("POST", f"{self._url}/assistants/search", query)
        for each in self._read(listed or [], list[Assistant]):
            return each
        raise self._failures.error(ErrorClass.NOT_SERVED, "the server has no such graph or assistant")

    async def has_thread(self, name: str) -> bool:
        return await self._http.request_json("GET", self._thread(name), handle=name) is not None

    def lost(self, name: str) -> AdapterError:
        kind = ErrorClass.HANDLE_EXPIRED if self._expires else ErrorClass.HANDLE_NOT_FOUND
        return self._failures.error(kind, f"thread {name!r} is not there")

    async def _messages_at(self, name: str, checkpoint: str, key: str) -> frozenset[str | None]:
        url = f"{self._thread(name)}/state/{id_segment(checkpoint, self._failures)}"
        found = await self._whole("GET", url, name, State)
        return frozenset(message.id for message in messages_of(None if found is None else found.values, key))

    async def _whole(self, method: str, url: str, handle: str, kind: type[T], body: bytes | None = None) -> T | None:
        """An answer that may hold all that was said, files included; None for HTTP 404."""
        reply = await self._http.request(method, url, body, handle=handle, expected=(200, 404), limit=_LARGEST)
        if reply.status == 404:
            return None
        try:
            found: T = read_document(reply.body, kind)
        except ValueError as error:
            what = f"an answer of another form: {error}"
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, what) from error
        return found

    def _read(self, value: Json, kind: type[T]) -> T:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            what = f"an answer of another form: {error}"
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, what) from error

    def _thread(self, name: str) -> str:
        return f"{self._url}/threads/{id_segment(name, self._failures)}"

    def _run(self, thread: str, run: str) -> str:
        return f"{self._thread(thread)}/runs/{id_segment(run, self._failures)}"


def is_uuid(handle: str) -> bool:
    """Whether a text can be the id of a thread or of an assistant."""
    try:
        return str(UUID(handle)) == handle.lower()
    except ValueError:
        return False


def run_of(headers: Mapping[str, str]) -> str:
    """The id of the run that a request has begun; empty where a proxy took the header away, or the header names no run."""
    path, _, rest = headers.get("Content-Location", "").rpartition("/runs/")
    run = rest.partition("/")[0]
    return run if path and run not in NO_SEGMENTS else ""
