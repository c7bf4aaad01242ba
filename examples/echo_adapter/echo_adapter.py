"""`type: echo`: a service that takes a conversation by POST and answers with lines of JSON."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx2
import msgspec
from gateway.config.settings import Settings, WebUrl
from gateway.ports import adapter as ports
from gateway.ports.conversation import AssistantItem, HandleKind, Item, Ownership, StorageOwner, UserItem
from pydantic import SecretStr


class EchoSettings(Settings):
    url: WebUrl
    api_key: SecretStr | None = None


class EchoAdapter:
    def __init__(self, settings: EchoSettings) -> None:
        self._url = settings.url
        self._key = settings.api_key.get_secret_value() if settings.api_key else ""
        # The gateway limits the duration and the number of calls.
        timeout, limits = httpx2.Timeout(None, connect=10), httpx2.Limits(max_connections=None)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._client = httpx2.AsyncClient(headers=headers, timeout=timeout, limits=limits)

    @property
    def ownership(self) -> Ownership:
        return Ownership(StorageOwner.GATEWAY, HandleKind.NONE)

    async def call(self, request: ports.ServiceRequest) -> AsyncGenerator[ports.AdapterEvent, None]:
        body = {"messages": [message for item in request.items for message in encode(item)]}
        try:
            async with self._client.stream("POST", self._url, json=body) as response:
                if response.status_code != 200:
                    raise self._failed(error_class(response.status_code), f"HTTP {response.status_code}")
                yield ports.CallStarted()
                async for line in lines(response):
                    event = self._decode(line)
                    yield event
                    if isinstance(event, ports.CallCompleted):
                        return
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.InvalidURL) as error:
            raise self._failed(ports.ErrorClass.UNREACHABLE, repr(error)) from error
        except httpx2.HTTPError as error:
            raise self._failed(ports.ErrorClass.INTERRUPTED, repr(error)) from error
        raise self._failed(ports.ErrorClass.INTERRUPTED, "the answer ended before its `done` line")

    async def aclose(self) -> None:
        await self._client.aclose()

    def _decode(self, line: bytes) -> ports.AdapterEvent:
        try:
            match msgspec.json.decode(line):
                case {"text": str(text)}:
                    return ports.TextDelta(text)
                case {"done": True}:
                    return ports.CallCompleted()
                case {"error": str(why)}:
                    raise self._failed(ports.ErrorClass.BACKEND_FAILED, why)
        except (ValueError, RecursionError) as error:
            raise self._failed(ports.ErrorClass.CONTRACT_BROKEN, "a line is not JSON") from error
        raise self._failed(ports.ErrorClass.CONTRACT_BROKEN, "a line is neither text nor done nor error")

    def _failed(self, kind: ports.ErrorClass, detail: str) -> ports.AdapterError:
        """For a log: the text of a service may quote the key or the conversation."""
        return ports.AdapterError(kind, (detail.replace(self._key, "***") if self._key else detail)[:200])


def encode(item: Item) -> list[dict[str, Any]]:
    match item:
        case UserItem(message=message):
            return [{"role": "user", "text": part.text} for part in message.parts if part.text is not None]
        case AssistantItem(parts=parts):
            return [{"role": "agent", "text": part.text} for part in parts if part.text is not None]
        case _:
            return []


def error_class(status: int) -> ports.ErrorClass:
    known = {401: ports.ErrorClass.UNAUTHORISED, 403: ports.ErrorClass.UNAUTHORISED, 429: ports.ErrorClass.RATE_LIMITED}
    return known.get(status, ports.ErrorClass.BACKEND_FAILED if status >= 500 else ports.ErrorClass.REJECTED)


async def lines(response: httpx2.Response) -> AsyncIterator[bytes]:
    """`aiter_lines` would also split inside a text, at U+2028 and the like. The last line may lack its line end."""
    rest = b""
    async for chunk in response.aiter_bytes():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
    if rest:
        yield rest


TEXT = ("text/plain",)
factory = ports.AdapterFactory(
    settings=EchoSettings,
    build=EchoAdapter,
    summary="A service that says everything again",
    states=(ports.StateKind(StorageOwner.GATEWAY, HandleKind.NONE, EchoAdapter),),
    input_modes=TEXT,
    output_modes=TEXT,
    tools=False,
)
