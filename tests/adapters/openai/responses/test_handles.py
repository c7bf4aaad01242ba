"""Which texts are no ids of a response, or of a conversation."""

import re

import pytest

from adapters.openai.responses.continuation import check_conversation_id, check_response_id

RESPONSES = ["resp_68ca", "resp_1", "resp-0f3e", "caresp_d567434e4c60f632", "resp_" + "x" * 470]
CONVERSATIONS = ["conv_68ca", "conv-1"]
OF_OTHER_SERVERS = ["7d3f1c2e-0b1a-4c5d-9e8f-001122334455", "01J9Z3", "chain/7"]
WORDS = ["hello", "my last talk", "Resp 1", "latest", "42", "-", "résumé_12"]


@pytest.mark.parametrize("handle", [*RESPONSES, *OF_OTHER_SERVERS])
def test_a_chain_takes_what_may_be_a_response(handle: str) -> None:
    check_response_id(handle)


@pytest.mark.parametrize("handle", [*CONVERSATIONS, *OF_OTHER_SERVERS])
def test_a_conversation_is_taken_where_the_agent_stays_in_one(handle: str) -> None:
    check_conversation_id(handle)


@pytest.mark.parametrize("handle", CONVERSATIONS)
def test_a_chain_refuses_a_conversation_and_names_the_setting_for_it(handle: str) -> None:
    with pytest.raises(ValueError, match=r"is a conversation, and this agent .* set `conversation: true`"):
        check_response_id(handle)


@pytest.mark.parametrize("handle", RESPONSES)
def test_a_conversation_refuses_a_response_and_names_the_setting_against_it(handle: str) -> None:
    with pytest.raises(ValueError, match=r"is a response, and this agent .*, as `conversation: true` says"):
        check_conversation_id(handle)


@pytest.mark.parametrize("handle", WORDS)
def test_words_are_no_ids(handle: str) -> None:
    with pytest.raises(ValueError, match=re.escape("is not the id of a response (resp_...)")):
        check_response_id(handle)
    with pytest.raises(ValueError, match=re.escape("is not the id of a conversation (conv_...)")):
        check_conversation_id(handle)


@pytest.mark.parametrize(
    ("handle", "kind"),
    [
        ("msg_68", "a message"),
        ("thread_abc", "a thread of the Assistants API"),
        ("chatcmpl-9", "an answer of Chat Completions"),
        ("sk-proj-1", "a key"),
    ],
)
def test_another_thing_of_the_api_is_called_by_its_name(handle: str, kind: str) -> None:
    with pytest.raises(ValueError, match=f"is {kind}, and not the id of a response"):
        check_response_id(handle)
