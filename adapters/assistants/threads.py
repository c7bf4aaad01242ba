"""The endpoints of threads, runs and files. Law: an address is made here only, with the version that the service wants.

Source: OpenAI API description 2.3.0, paths `/threads`; azure-ai-agents 1.1.0, operations.
"""

import base64
import mimetypes
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from adapters.assistants import wire
from adapters.assistants.failures import ThreadFailures
from adapters.assistants.request import UPLOADED, File
from adapters.http.address import id_segment
from adapters.http.client import HttpClient
from adapters.http.document import read_document
from adapters.http.multipart import FormField, encode_form
from adapters.http.named_events import ServerEvent
from adapters.http.streams import AnswerStream
from gateway.a2a.model import Json, Part
from gateway.ports.adapter import AdapterError, ErrorClass

PAGE_SIZE = 100
FILE_LIMIT = 16 * 1024 * 1024
"""Bytes of the largest file of an answer that is passed on."""

T = TypeVar("T")


class Threads:
    """`version` is the `api-version` of every request, or "" where the service has none."""

    def __init__(self, http: HttpClient, failures: ThreadFailures, base: str, version: str) -> None:
        self._http = http
        self._failures = failures
        self._base = base
        self._version = {"api-version": version} if version else {}

    # --- runs

    def run(self, thread: str, body: Json) -> AnswerStream[ServerEvent]:
        """The events of a new run."""
        address = self._address("threads", thread, "runs")
        return self._http.events(address, msgspec.json.encode(body), handle=thread)

    def submit(self, thread: str, run: str, outcomes: dict[str, Json]) -> AnswerStream[ServerEvent]:
        """The events of a run that goes on with the outcomes for which it waited."""
        body = msgspec.json.encode(outcomes | {"stream": True})
        return self._http.events(self._submission(thread, run), body, handle=thread)

    async def submit_quietly(self, thread: str, run: str, outcomes: dict[str, Json]) -> None:
        """The same for a run whose answer nobody wants."""
        await self._http.request_json("POST", self._submission(thread, run), outcomes, handle=thread)

    async def cancel(self, thread: str, run: str) -> wire.Run | None:
        """The run, which may take a while to end; None where there is none."""
        address = self._address("threads", thread, "runs", run, "cancel")
        return self._run(await self._http.request_json("POST", address, {}, handle=thread))

    async def find_run(self, thread: str, run: str) -> wire.Run | None:
        return self._run(await self._get(thread, "threads", thread, "runs", run))

    async def newest_runs(self, thread: str, limit: int = PAGE_SIZE) -> list[wire.Run]:
        """The newest first. Raises: AdapterError, HANDLE_NOT_FOUND for a thread that is not there."""
        listed = await self._get(thread, "threads", thread, "runs", order="desc", limit=limit)
        if listed is None:
            raise self._failures.error(ErrorClass.HANDLE_NOT_FOUND, f"thread {thread!r} is not there")
        return [self._read(run, wire.Run) for run in self._read(listed, wire.Page).data]

    async def steps(self, thread: str, run: str) -> list[wire.Step]:
        """The oldest first."""
        return await self._all(wire.Step, thread, "threads", thread, "runs", run, "steps")

    async def messages(self, thread: str, run: str = "") -> list[wire.Message]:
        """The messages that a run has made, or all; the oldest first."""
        only = {"run_id": run} if run else {}
        return await self._all(wire.Message, thread, "threads", thread, "messages", **only)

    # --- threads and assistants

    async def make_thread(self) -> str:
        match await self._http.request_json("POST", self._address("threads"), {}):
            case {"id": str(name)} if name:
                return name
            case None:
                raise self._failures.error(ErrorClass.NOT_SERVED, "the service has no threads (HTTP 404)")
        raise self._failures.error(ErrorClass.CONTRACT_BROKEN, "a thread was made without an id")

    async def has_thread(self, thread: str) -> bool:
        return await self._get(thread, "threads", thread) is not None

    async def delete_thread(self, thread: str) -> None:
        await self._http.request_json("DELETE", self._address("threads", thread), handle=thread)

    async def assistant(self, name: str) -> dict[str, Json]:
        """Raises: AdapterError, NOT_SERVED for one that is not there."""
        match await self._get(None, "assistants", name):
            case dict() as found:
                return found
            case None:
                raise self._failures.error(ErrorClass.NOT_SERVED, f"the service has no assistant {name!r}")
        raise self._failures.error(ErrorClass.CONTRACT_BROKEN, "an assistant is no object")

    # --- files

    async def upload(self, file: File) -> str:
        purpose = FormField("purpose", b"vision" if file.is_picture else b"assistants")
        body, form = encode_form((purpose, FormField("file", file.data, file.name, file.media_type)))
        reply = await self._http.request("POST", self._address("files"), body, headers={"Content-Type": form})
        try:
            stored: wire.FileObject = read_document(reply.body, wire.FileObject)
        except ValueError as error:
            raise self._broken(f"a file was stored without an id: {error}") from error
        return stored.id

    async def file_name(self, name: str) -> str:
        match await self._get(None, "files", name):
            case {"filename": str(known)} if known:
                return PurePosixPath(known).name
        return name

    async def download(self, name: str) -> Part:
        known = await self.file_name(name)
        reply = await self._http.request("GET", self._address("files", name, "content"), limit=FILE_LIMIT)
        media_type = mimetypes.guess_type(known)[0] or reply.headers.get("Content-Type", "application/octet-stream")
        return Part(raw=base64.b64encode(reply.body).decode(), filename=known, media_type=media_type.partition(";")[0])

    async def delete_file(self, name: str) -> None:
        await self._http.request_json("DELETE", self._address("files", name))

    async def uploaded_files(self, thread: str) -> list[str]:
        """The files that came to the service with messages of this thread."""
        names: dict[str, None] = {}
        for message in await self.messages(thread):
            if UPLOADED in (message.metadata or {}):
                names |= dict.fromkeys(message.files)
        return list(names)

    # --- the wire

    def _submission(self, thread: str, run: str) -> str:
        return self._address("threads", thread, "runs", run, "submit_tool_outputs")

    def _address(self, *path: str, **query: str | int) -> str:
        parameters = urlencode(self._version | query)
        address = "/".join((self._base, *(id_segment(part, self._failures) for part in path)))
        return f"{address}?{parameters}" if parameters else address

    async def _get(self, handle: str | None, *path: str, **query: str | int) -> Json:
        return await self._http.request_json("GET", self._address(*path, **query), handle=handle)

    async def _all(self, kind: type[T], handle: str, *path: str, **query: str) -> list[T]:
        found: list[T] = []
        after: Mapping[str, str] = {}
        while True:
            listed = await self._get(handle, *path, order="asc", limit=PAGE_SIZE, **query, **after)
            page = self._read(listed or {}, wire.Page)
            found += [self._read(one, kind) for one in page.data]
            if not page.has_more or not page.last_id or after.get("after") == page.last_id:
                return found
            after = {"after": page.last_id}

    def _run(self, found: Json) -> wire.Run | None:
        return None if found is None else self._read(found, wire.Run)

    def _read(self, value: Json, kind: type[T]) -> T:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise self._broken(f"an object cannot be read: {error}") from error

    def _broken(self, what: str) -> AdapterError:
        return self._failures.error(ErrorClass.CONTRACT_BROKEN, what)
