"""Logged events that add text, as protobuf. Law: the events of one artifact differ in their text; that alone is read of each,
and what stands around it once.

Streams are made of such events, and reading each of them whole takes three times as long.
"""

from functools import lru_cache
from typing import NamedTuple

import msgspec

from gateway.a2a.wire.protobuf import Message, varint

_EVENT = b'{"artifactUpdate":'
_BEFORE, _BEHIND = b'"parts":[{"text":', b"}]}"
"""The first `_BEFORE` of an event is no text: a string of JSON has no quotation mark that is not escaped."""

_TEXT = "\0"
"""Stands for the text where the rest is read."""

_text = msgspec.json.Decoder(str)


class _Rest(NamedTuple):
    """What stands around the text: in the update up to the size of the artifact, in the artifact up to the size of the part,
    and behind each."""

    update_begin: bytes
    artifact_begin: bytes
    artifact_end: bytes
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
            text = _text.decode(payload[begin:end]).encode()
        except msgspec.DecodeError:
            return None
        update_begin, artifact_begin, artifact_end, update_end = rest
        text_begin = self._text_tag + varint(len(text))
        size = len(text_begin) + len(text)
        part_size = varint(size)
        size += len(part_size) + len(artifact_begin) + len(artifact_end)
        artifact_size = varint(size)
        size += len(artifact_size) + len(update_begin) + len(update_end)
        before = (self._update_tag, varint(size), update_begin, artifact_size, artifact_begin, part_size, text_begin)
        return b"".join((*before, text, artifact_end, update_end))

    def _read(self, begin: bytes, end: bytes) -> _Rest | None:
        try:
            update = msgspec.json.decode(begin + msgspec.json.encode(_TEXT) + end)["artifactUpdate"]
        except msgspec.DecodeError:
            return None
        artifact = update["artifact"]
        if artifact.get("parts") != [{"text": _TEXT}]:
            return None
        artifact_begin, artifact_end = self._artifact.write_around(artifact, "parts")
        update_begin, update_end = self._update.write_around(update, "artifact")
        return _Rest(update_begin + self._artifact_tag, artifact_begin + self._part_tag, artifact_end, update_end)
