"""The dialect of the draft of A2A 1.1: that of 1.0, with the generations of tasks. Law: a logged event is not decoded for it.

Source: A2A, main branch at 28491879, sections 3.2.2 and 3.2.7.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from gateway.a2a.draft_1_1 import ConditionalMessageRequest, LongPollRequest, generation
from gateway.a2a.wire import v1_0
from gateway.a2a.wire.dialect import Method

VERSION = "1.1"

_CHANGED: Mapping[str, Method] = {
    "SendMessage": replace(v1_0.METHODS["SendMessage"], request=ConditionalMessageRequest),
    "SendStreamingMessage": replace(v1_0.METHODS["SendStreamingMessage"], request=ConditionalMessageRequest),
    "GetTask": replace(v1_0.METHODS["GetTask"], request=LongPollRequest, held=True),
}

_UPDATES = (b'{"statusUpdate":{', b'{"artifactUpdate":{')


def method(name: str) -> Method:
    """Raises: MethodNotFound."""
    return _CHANGED.get(name) or v1_0.method(name)


def event(number: int | None, payload: bytes) -> bytes:
    """An event of the log with its generation. A Task has it already, and a message has none."""
    if number is None or not payload.startswith(_UPDATES):
        return payload
    begin = payload.index(b"{", 1) + 1
    return b'%b"generation":"%d",%b' % (payload[:begin], generation(number), payload[begin:])


DIALECT = replace(v1_0.DIALECT, version=VERSION, method=method, event=event)
