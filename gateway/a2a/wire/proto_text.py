"""Logged events that add text, as protobuf. Law: the events of one artifact differ in their text; that alone is read of each,
and what stands around it once.

Streams are made of such events, and reading each of them whole takes three times as long.
"""

from functools import lru_cache
from typing import NamedTuple

import msgspec

from gateway.a2a.wire.protobuf import Message, delimited

_EVENT = b'{"artifactUpdate":'
_BEFORE, _BEHIND = b'"parts":[{"text":', b"}]}"
"""The first `_BEFORE` of an event is no text: a string of JSON has no quotation mark that is not escaped."""

_TEXT = "\0"
"""Stands for the text where the rest is read."""

_text = msgspec.json.Decoder(str)


class _Rest(NamedTuple):
    """What stands around the text: in the artifact, and around that in its update."""

    artifact_begin: bytes
    artifact_end: bytes
    update_begin: bytes
    update_end: bytes


class TextEvents:
    """Writes the logged events that add one text to an artifact."""

    def __init__(self, event: Message, update: Message, artifact: Message, part: Message) -> None:
        """The messages, each in the one before."""
        self._update, self._update_tag = update, event.tag("artifactUpdate")
        self._artifact, self._artifact_tag = artifact, update.tag("artifact")
        self._part_tag, self._text_tag = artifact.tag("parts"), part.tag("text")
        self._rest = lru_cache(maxsize=1024)(self._read)

    def write(self, payload: bytes) -> bytes | None:
        """None for an event of another form."""
        begin, end = payload.find(_BEFORE) + len(_BEFORE), payload.rfind(_BEHIND)
        if begin < len(_BEFORE) or end < begin or not payload.startswith(_EVENT):
            return None
        rest = self._rest(payload[:begin], payload[end:])
        if rest is None:
            return None
        try:
            text = _text.decode(payload[begin:end])
        except msgspec.DecodeError:
            return None
        part = delimited(delimited(text.encode(), self._text_tag), self._part_tag)
        artifact = delimited(rest.artifact_begin + part + rest.artifact_end, self._artifact_tag)
        return delimited(rest.update_begin + artifact + rest.update_end, self._update_tag)

    def _read(self, begin: bytes, end: bytes) -> _Rest | None:
        try:
            update = msgspec.json.decode(begin + msgspec.json.encode(_TEXT) + end)["artifactUpdate"]
        except msgspec.DecodeError:
            return None
        artifact = update["artifact"]
        if artifact.get("parts") != [{"text": _TEXT}]:
            return None
        return _Rest(*self._artifact.write_around(artifact, "parts"), *self._update.write_around(update, "artifact"))
