"""Files that Direct Line keeps. Law: an address of the service leaves the adapter without its query, which holds a token."""

import base64
from urllib.parse import urlsplit, urlunsplit

import structlog

from adapters.copilot.direct_line.service import DirectLine
from gateway.a2a.model import Part
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.adapter import AdapterError, AdapterEvent, PartReady

log = structlog.get_logger("adapters.copilot.direct_line.files")


async def with_bytes(line: DirectLine, event: AdapterEvent) -> AdapterEvent:
    """A file that Direct Line keeps for a day is told with its bytes; one that cannot be had, by its bare address."""
    match event:
        case PartReady(part=Part(url=str(url), media_type=kind, filename=name)) if line.keeps(url):
            try:
                content, given = await line.file(url)
            except AdapterError as error:
                log.warning("file.not-had", detail=error.detail)
                drop_tracebacks(error)
                bare = urlunsplit(urlsplit(url)._replace(query="", fragment=""))
                return PartReady(Part(url=bare, media_type=kind, filename=name))
            raw = base64.b64encode(content).decode()
            return PartReady(Part(raw=raw, media_type=kind or given or None, filename=name))
    return event
