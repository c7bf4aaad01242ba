"""Files that the service's tools have written: fetched from the Files API, as parts of the answer. Law: a file that cannot be
fetched is told, and fails no answer.

Source: anthropic 2.14.0, `resources/files.py` and type `FileMetadata`.
"""

import base64
import logging
from collections.abc import Iterator

from adapters.http.address import id_segment
from adapters.http.client import HttpClient
from adapters.http.failures import Failures
from gateway.a2a.model import Json, Part
from gateway.ports.adapter import AdapterError, AdapterEvent, PartReady, Progress

LARGEST = 16 * 1024 * 1024
"""Bytes of the largest file that becomes a part of the answer."""

_log = logging.getLogger(__name__)
_BETA = {"anthropic-beta": "files-api-2025-04-14"}


def named_files(result: Json) -> Iterator[str]:
    """The ids of the files in the content of a result: those of the outputs of a program."""
    outputs = result.get("content") if isinstance(result, dict) else None
    for output in outputs if isinstance(outputs, list) else ():
        match output:
            case {"file_id": str(name)}:
                yield name


class Files:
    def __init__(self, http: HttpClient, failures: Failures, base_url: str) -> None:
        self._http = http
        self._failures = failures
        self._url = f"{base_url}/v1/files"

    async def fetch(self, name: str) -> AdapterEvent:
        try:
            url = f"{self._url}/{id_segment(name, self._failures)}"
            about = await self._http.request_json("GET", url, headers=_BETA)
            content = await self._http.request("GET", f"{url}/content", headers=_BETA, limit=LARGEST)
        except AdapterError as error:
            _log.warning("a file of the service cannot be fetched: %s", error)
            return Progress("A file that the agent has written could not be fetched.")
        known = about if isinstance(about, dict) else {}
        filename, kind = (
            text if isinstance(text := known.get(key), str) else None for key in ("filename", "mime_type")
        )
        raw = base64.b64encode(content.body).decode()
        return PartReady(Part(raw=raw, filename=filename or name, media_type=kind or "application/octet-stream"))
