"""A Foundry hosted agent in a conversation.

It goes on in any id and makes none itself: Foundry has them beside its agents. In its resilient mode it tells a lock as 409
to a client that does not stream; to one that does it cuts the answer.
"""

from collections.abc import AsyncIterator
from secrets import token_hex

import pytest

from adapters.openai.responses.adapter import factory
from adapters.openai.responses.conversation import ConversationAdapter
from gateway.ports.adapter import AdapterError, CallCompleted, ErrorClass
from gateway.testing.adapter_scripts import collect, completed, request, text
from tests.interop.peer_processes import Peer


@pytest.fixture
async def adapter(agentserver_peer: Peer) -> AsyncIterator[ConversationAdapter]:
    settings = {"model": "m", "base_url": agentserver_peer.url, "conversation": True}
    built = factory.build(factory.settings.model_validate(settings))
    assert isinstance(built, ConversationAdapter)
    yield built
    await built.aclose()


async def test_a_conversation_that_was_made_elsewhere_is_gone_on_with_and_echoed(adapter: ConversationAdapter) -> None:
    handle = f"conv_{token_hex(24)}"
    answers = [await collect(adapter, request(words, handle=handle)) for words in ("one", "two")]
    assert [text(events) for events in answers] == [
        f"echo 'one' history=0 conversation={handle}",
        f"echo 'two' history=2 conversation={handle}",
    ]
    ends: list[CallCompleted] = [completed(events) for events in answers]
    assert [end.handle for end in ends] == [handle, handle]
    assert ends[0].state != ends[1].state


async def test_that_it_has_no_conversations_is_told(adapter: ConversationAdapter) -> None:
    with pytest.raises(AdapterError) as caught:
        await collect(adapter, request("one"))
    assert (caught.value.kind, caught.value.detail) == (
        ErrorClass.NOT_SERVED,
        "the service has no conversations (HTTP 404)",
    )
