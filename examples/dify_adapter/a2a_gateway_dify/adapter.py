"""`type: dify`: a chat app of Dify, which keeps the conversation under its `conversation_id`."""

import asyncio
import base64
import binascii
import mimetypes
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
import msgspec
from gateway.a2a.model import Json, Message, Part
from gateway.config.settings import Settings, Text, TimeLimit, WebUrl
from gateway.ports import adapter as ports
from gateway.ports.capabilities import Backend, Description, Fate, Fetched, Ongoing, ProbeReport, Tail
from gateway.ports.conversation import AssistantItem, HandleKind, Item, Ownership, StorageOwner, UserItem
from msgspec import UNSET
from pydantic import Field, SecretStr

from .answer import Answer, asking
from .faults import Faults
from .forms import Pending, Submission, submission, waiting

CLOUD = "https://api.dify.ai/v1"
MODES = {"chat": "Chatbot", "agent-chat": "Agent", "agent": "New Agent", "advanced-chat": "Chatflow"}
DOCUMENTS = {
    "txt",
    "md",
    "mdx",
    "markdown",
    "html",
    "pdf",
    "xlsx",
    "xls",
    "doc",
    "docx",
    "csv",
    "eml",
    "msg",
    "ppt",
    "pptx",
    "xml",
    "epub",
    "vtt",
    "properties",
}


class DifySettings(Settings):
    api_key: SecretStr = Field(description="Key of the app (app-...).")
    user: Text = Field(description="The end user at Dify whose conversations these are; keep it, or they are lost.")
    base_url: WebUrl = Field(default=CLOUD, description="Where the API is, its version included.")
    inputs: dict[str, Any] = Field(default_factory=dict, description="Values for the input variables of the app.")
    workflow_id: Text | None = Field(
        default=None, description="Chatflow: this published version instead of the latest."
    )
    chatflow: bool = Field(default=False, description="The app is a Chatflow: ask for its run when an answer was cut.")
    silence: TimeLimit = Field(default=60.0, description="Longest silence of Dify, which says `ping` every 10 s.")


class DifyAdapter:
    def __init__(self, settings: DifySettings) -> None:
        self._settings = settings
        self._base = settings.base_url.rstrip("/")
        key = settings.api_key.get_secret_value()
        self._faults = Faults(key)
        self.backend = Backend(self._base, settings.api_key)
        self._client = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx2.Timeout(settings.silence, connect=10, pool=None),
            # No kept connections: one that has ended in the meantime would look like a request that was lost.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
        )

    @property
    def ownership(self) -> Ownership:
        return Ownership(StorageOwner.BACKEND, HandleKind.STATIC)

    async def call(self, request: ports.ServiceRequest) -> AsyncGenerator[ports.AdapterEvent, None]:
        pending = waiting(request.secret).tasks.get(request.task_id)
        if pending is not None:
            async with aclosing(self._go_on(request, pending)) as events:
                async for event in events:
                    if event is None:
                        break
                    yield event
                else:
                    return
        answer = Answer(self._faults, self._base, request)
        body = await self._body(request)
        async with aclosing(self._listen(answer, "POST", "/chat-messages", request.handle, json=body)) as events:
            async for event in events:
                yield event

    async def aclose(self) -> None:
        await self._client.aclose()

    async def cancel(self, call: Ongoing) -> bool:
        if call.run is None:
            return False
        path = f"/chat-messages/{quote(call.run.partition(':')[0], safe='')}/stop"
        async with self._sent("POST", path, json={"user": self._settings.user}) as response:
            status, _ = await self._json(response)
            if status == 404:
                return True
            await self._refuse(response)
        return True

    async def forget(self, handle: str) -> None:
        path = f"/conversations/{quote(handle, safe='')}"
        async with self._sent("DELETE", path, json={"user": self._settings.user}) as response:
            if response.status_code != 404:
                await self._refuse(response)

    async def tail(self, request: ports.ServiceRequest) -> Tail | None:
        """Dify keeps a message with its answer; one without an answer does not count, as Dify does not tell it its model."""
        known = request.state.get("message") if isinstance(request.state, dict) else None
        asked = {"conversation_id": request.handle or "", "user": self._settings.user, "limit": "20"}
        async with self._sent("GET", "/messages", params=asked) as response:
            await self._refuse(response, request.handle)
            _, listed = await self._json(response)
        later: list[dict[str, Any]] = []
        for entry in listed.get("data") or ():
            if isinstance(entry, dict) and entry.get("id") == known:
                break
            later.insert(0, entry)
        else:
            return None
        held, answer = 0, ""
        for entry in later:
            ends = range(held + 1, len(request.items) + 1)
            end = next((end for end in ends if query(request.items[held:end]) == entry.get("query")), None)
            if end is not None and entry.get("answer"):
                held, answer, known = end, str(entry["answer"]), entry.get("id")
        if not held:
            return Tail(0)
        return Tail(held, (ports.TextDelta(answer), ports.CallCompleted(request.handle, state={"message": known})))

    def check_handle(self, handle: str) -> None:
        try:
            uuid.UUID(handle)
        except ValueError:
            raise ValueError("is no conversation_id of Dify, which is a UUID") from None

    async def describe(self) -> Description:
        info = await self._get("/info")
        name, text = info.get("name"), info.get("description")
        return Description(
            name=name if isinstance(name, str) and name else None,
            description=text if isinstance(text, str) and text else None,
        )

    async def probe(self) -> ProbeReport:
        info = await self._get("/info")
        mode = info.get("mode")
        if mode is not None and mode not in MODES:
            raise self._faults.error(ports.ErrorClass.NOT_SERVED, f"the app is no chat app, its mode is {mode}")
        notes = [f"{MODES.get(str(mode), 'app')} {info.get('name')}"]
        if mode == "advanced-chat" and not self._settings.chatflow:
            notes.append("with `chatflow: true` its runs are asked about when an answer was cut")
        parameters = await self._get("/parameters")
        notes += [
            f"the app wants the input {name!r}: set it in `inputs`"
            for name in _required(parameters)
            if name not in self._settings.inputs
        ]
        unknown = {"conversation_id": str(uuid.uuid4()), "user": self._settings.user, "limit": "1"}
        async with self._sent("GET", "/messages", params=unknown) as response:
            status, _ = await self._json(response)
        return ProbeReport(verifies_chain=True if status == 404 else None, notes=tuple(notes))

    async def _go_on(
        self, request: ports.ServiceRequest, pending: Pending
    ) -> AsyncGenerator[ports.AdapterEvent | None, None]:
        """The answer to a form, and the rest of its run. None: the form is gone, and the message is one like any other."""
        user = next(item.message for item in reversed(request.items) if isinstance(item, UserItem))
        form = pending.forms[0]
        if form.token is None:
            run = await self._get(f"/workflows/run/{quote(pending.run, safe='')}")
            if run.get("status") == "paused":
                yield ports.CallStarted(request.handle)
                yield asking(request, pending, request.handle)
                return
        else:
            given = submission(form, user)
            if given is None:
                yield ports.CallStarted(request.handle)
                yield asking(request, pending, request.handle, before="That is none of the choices.")
                return
            outcome = await self._submit(form.token, given, user)
            if outcome == "gone":
                yield None
                return
            if outcome == "refused":
                yield ports.CallStarted(request.handle)
                yield asking(request, pending, request.handle, before="The form did not take that.")
                return
            if len(pending.forms) > 1:
                yield ports.CallStarted(request.handle)
                yield asking(request, Pending(pending.run, pending.forms[1:]), request.handle)
                return
        answer = Answer(self._faults, self._base, request, run=pending.run)
        path, query = f"/workflow/{quote(pending.run, safe='')}/events", {"user": self._settings.user}
        async with aclosing(self._listen(answer, "GET", path, None, params=query)) as events:
            async for event in events:
                yield event

    async def _submit(self, token: str, given: Submission, message: Message) -> str:
        inputs = dict(given.inputs)
        files = [file for part in message.parts if (file := await self._attached(part)) is not None]
        for name in given.files:
            if files and name not in inputs:
                inputs[name] = files if name in given.lists else files[0]
        body = {"inputs": inputs, "action": given.action, "user": self._settings.user}
        async with self._sent("POST", f"/form/human_input/{quote(token, safe='')}", json=body) as response:
            status, _ = await self._json(response)
            if status == 404:
                return "gone"
            if status == 400:
                return "refused"
            if status != 412:  # submitted by somebody else, or expired: the run goes on in any case
                await self._refuse(response)
        return "taken"

    async def _listen(
        self, answer: Answer, method: str, path: str, handle: str | None, **request: Any
    ) -> AsyncGenerator[ports.AdapterEvent, None]:
        try:
            async with self._sent(method, path, headers={"Accept": "text/event-stream"}, **request) as response:
                await self._refuse(response, handle)
                async with aclosing(events(response)) as lines:
                    async for line in lines:
                        for event in answer.read(self._object(line)):
                            yield event
                        if answer.complete:
                            break
        except ports.AdapterError as error:
            if not (answer.ended and isinstance(error.__cause__, httpx2.HTTPError)):
                raise
        yield answer.end()

    async def _body(self, request: ports.ServiceRequest) -> dict[str, Any]:
        messages = [item.message for item in request.items if isinstance(item, UserItem)]
        files = [file for one in messages for part in one.parts if (file := await self._attached(part)) is not None]
        body: dict[str, Any] = {
            "query": query(request.items),
            "inputs": self._settings.inputs,
            "response_mode": "streaming",
            "conversation_id": request.handle or "",
            "user": self._settings.user,
        }
        if files:
            body["files"] = files
        if self._settings.workflow_id is not None:
            body["workflow_id"] = self._settings.workflow_id
        return body

    async def _attached(self, part: Part) -> dict[str, Any] | None:
        """A file of the caller in Dify's terms. An address is passed on; bytes are uploaded."""
        if part.url is not None:
            return {"type": file_type(part), "transfer_method": "remote_url", "url": part.url}
        if part.raw is None:
            return None
        try:
            content = base64.b64decode(part.raw, validate=True)
        except (binascii.Error, ValueError) as error:
            raise self._faults.error(ports.ErrorClass.REJECTED, "a file is not base64") from error
        media = part.media_type or "application/octet-stream"
        name = (part.filename or "file" + (mimetypes.guess_extension(media) or "")).replace("/", "_").replace("\\", "_")
        upload = {"file": (name, content, media)}
        async with self._sent("POST", "/files/upload", files=upload, data={"user": self._settings.user}) as response:
            await self._refuse(response)
            _, stored = await self._json(response)
        if not isinstance(stored.get("id"), str):
            raise self._faults.error(ports.ErrorClass.CONTRACT_BROKEN, "an uploaded file got no id")
        return {"type": file_type(part), "transfer_method": "local_file", "upload_file_id": stored["id"]}

    async def _get(self, path: str) -> dict[str, Any]:
        async with self._sent("GET", path) as response:
            await self._refuse(response)
            return (await self._json(response))[1]

    @asynccontextmanager
    async def _sent(self, method: str, path: str, **request: Any) -> AsyncIterator[httpx2.Response]:
        with self._translated():
            async with self._client.stream(method, self._base + path, **request) as response:
                yield response

    async def _json(self, response: httpx2.Response) -> tuple[int, dict[str, Any]]:
        try:
            value = msgspec.json.decode(await response.aread())
        except (ValueError, RecursionError):
            value = None
        return response.status_code, value if isinstance(value, dict) else {}

    async def _refuse(self, response: httpx2.Response, handle: str | None = None) -> None:
        if response.is_success:
            return
        status, body = await self._json(response)
        after = response.headers.get("retry-after", "")
        raise self._faults.refusal(
            status,
            str(body.get("code", "")),
            str(body.get("message", "")),
            handle=handle,
            retry_after=float(after) if after.isdecimal() else None,
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.InvalidURL) as error:
            raise self._faults.error(ports.ErrorClass.UNREACHABLE, repr(error)) from error
        except httpx2.TimeoutException as error:
            raise self._faults.error(ports.ErrorClass.TIMED_OUT, repr(error)) from error
        except httpx2.HTTPError as error:
            raise self._faults.error(ports.ErrorClass.INTERRUPTED, repr(error)) from error

    def _object(self, line: bytes) -> dict[str, Any]:
        try:
            value = msgspec.json.decode(line)
        except (ValueError, RecursionError) as error:
            raise self._faults.error(ports.ErrorClass.CONTRACT_BROKEN, "an event is not JSON") from error
        if not isinstance(value, dict):
            raise self._faults.error(ports.ErrorClass.CONTRACT_BROKEN, "an event is no object")
        return value


class ChatflowAdapter(DifyAdapter):
    """The run of a Chatflow goes on without a listener, and can be asked about; the answers of other apps cannot."""

    async def fetch(self, call: Ongoing) -> Fetched:
        """The names are those of `run_name`."""
        _, message, workflow = ((call.run or "").split(":") + ["", ""])[:3]
        if not workflow:
            return Fetched(Fate.GONE)
        async with self._sent("GET", f"/workflows/run/{quote(workflow, safe='')}") as response:
            status, run = await self._json(response)
            if status == 404:
                return Fetched(Fate.GONE)
            await self._refuse(response)
        match run.get("status"):
            case "running":
                return Fetched(Fate.RUNNING)
            case "succeeded" | "partial-succeeded":
                outputs = run.get("outputs")
                answer = outputs.get("answer") if isinstance(outputs, dict) else None
                done = ports.CallCompleted(call.handle, state={"message": message})
                return Fetched(Fate.COMPLETED, (ports.TextDelta(answer), done) if isinstance(answer, str) else (done,))
        return Fetched(Fate.FAILED)

    async def resume(self, request: ports.ServiceRequest, call: Ongoing) -> AsyncGenerator[ports.AdapterEvent, None]:
        """Dify streams a run again only from now on, so the run is asked until it has ended, and told at once."""
        wait = 0.5
        yield ports.CallStarted(call.handle, call.run)
        while (found := await self.fetch(call)).fate is Fate.RUNNING:
            await asyncio.sleep(wait)
            wait = min(wait * 2, 8)
        if found.fate is not Fate.COMPLETED:
            raise self._faults.error(ports.ErrorClass.BACKEND_FAILED, f"the run has {found.fate}")
        for event in found.events:
            yield event


async def events(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """The JSON of each `data:` line. A ping has none."""
    rest = b""
    async for chunk in response.aiter_bytes():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line.startswith(b"data:") and (data := line[5:].strip()):
                yield data
    if rest.startswith(b"data:") and (data := rest[5:].strip()):
        yield data


def query(items: tuple[Item, ...]) -> str:
    """The new messages. Only a conversation that is told again has answers of the agent in it."""
    told = any(isinstance(item, AssistantItem) for item in items)
    texts: list[str] = []
    for item in items:
        match item:
            case UserItem(message=message) if words := _words(message.parts):
                texts.append(f"User: {words}" if told and item is not items[-1] else words)
            case AssistantItem(parts=parts) if words := _words(parts):
                texts.append(f"Assistant: {words}")
    names = [part.filename or "file" for item in items if isinstance(item, UserItem) for part in item.message.parts]
    return "\n\n".join(texts) or ", ".join(names)  # Dify takes no empty query


def _words(parts: tuple[Part, ...]) -> str:
    texts = []
    for part in parts:
        if part.text is not None:
            texts.append(part.text)
        elif part.data is not UNSET:
            texts.append(msgspec.json.encode(part.data).decode())
    return "\n\n".join(texts)


def file_type(part: Part) -> str:
    path = part.filename or (urlsplit(part.url).path if part.url is not None else "")
    media = part.media_type or mimetypes.guess_type(path)[0] or ""
    if (kind := media.partition("/")[0]) in ("image", "audio", "video"):
        return kind
    extension = path.rpartition(".")[2].lower() or (mimetypes.guess_extension(media) or "").lstrip(".")
    return "document" if extension in DOCUMENTS or media.startswith("text/") else "custom"


def _required(parameters: dict[str, Json]) -> list[str]:
    found = []
    for entry in parameters.get("user_input_form") or ():
        for control in entry.values() if isinstance(entry, dict) else ():
            if isinstance(control, dict) and control.get("required") and not control.get("default"):
                found.append(str(control.get("variable")))
    return found


def build(settings: DifySettings) -> DifyAdapter:
    return ChatflowAdapter(settings) if settings.chatflow else DifyAdapter(settings)


FILES = ("image/*", "audio/*", "video/*", "text/*", "application/*")
factory = ports.AdapterFactory(
    settings=DifySettings,
    build=build,
    summary="Chat apps of Dify: Chatbot, Agent, New Agent, Chatflow",
    states=(
        ports.StateKind(StorageOwner.BACKEND, HandleKind.STATIC, DifyAdapter),
        ports.StateKind(StorageOwner.BACKEND, HandleKind.STATIC, ChatflowAdapter, "chatflow: true"),
    ),
    input_modes=("text/plain", "application/json", *FILES),
    output_modes=("text/plain", "application/json", *FILES),
    tools=False,
)
