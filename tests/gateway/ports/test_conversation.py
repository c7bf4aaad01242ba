"""The items of a thread, written and read back, and the valid kinds of ownership."""

from itertools import product
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from gateway.a2a.model import Json, Message, Part, Role
from gateway.ports.conversation import (
    AssistantItem,
    CallItem,
    HandleKind,
    Item,
    OpaqueItem,
    OutputItem,
    Ownership,
    ReasoningItem,
    StorageOwner,
    UserItem,
    decode,
    encode,
    kind,
)

ITEMS: dict[str, Item] = {
    "user": UserItem(Message(message_id="m", role=Role.USER, parts=(Part(text="hi"), Part(data=None)))),
    "assistant": AssistantItem((Part(text="yes"), Part(raw="AA==", media_type="image/png"))),
    "reasoning": ReasoningItem("hm", {"encrypted_content": "xyz"}),
    "call": CallItem("c1", "add", "not JSON"),
    "output": OutputItem("c1", {"sum": 3}, error=True),
    "opaque": OpaqueItem("compaction", {"of": "theirs"}),
}


def test_there_is_one_example_of_every_kind() -> None:
    assert {type(item) for item in ITEMS.values()} == set(get_args(Item))


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_is_read_back_as_it_was_and_knows_its_kind(name: str) -> None:
    assert decode(encode(ITEMS[name])) == ITEMS[name]
    assert kind(ITEMS[name]) == name


@pytest.mark.parametrize("output", ["", [], 0, False, None, {}])
def test_an_empty_output_is_an_outcome_and_comes_back_as_itself(output: Json) -> None:
    read = decode(encode(OutputItem("c", output)))
    assert isinstance(read, OutputItem)
    assert read.output == output
    assert type(read.output) is type(output)


def test_an_item_that_holds_all_before_it_says_so_and_one_stored_without_the_word_does_not() -> None:
    item = OpaqueItem("compaction", {}, boundary=True)
    assert decode(encode(item)) == item
    assert decode(b'{"kind":"opaque","type":"compaction","payload":{}}') == OpaqueItem("compaction", {})
    assert b"boundary" not in encode(OpaqueItem("compaction", {}))


_JSON = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(min_value=-(10**20) + 1, max_value=10**20 - 1)
    | some.floats(allow_nan=False, allow_infinity=False)
    | some.text(some.characters(exclude_categories=["Cs"])),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(_JSON)
def test_any_json_that_an_item_carries_comes_back_equal(value: Json) -> None:
    assert decode(encode(OpaqueItem("any", value))) == OpaqueItem("any", value)
    assert decode(encode(OutputItem("c", value))) == OutputItem("c", value)


@pytest.mark.parametrize("payload", [b'{"kind":"later"}', b"{}", b"[]", b"not JSON"])
def test_a_payload_that_is_no_item_is_refused(payload: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(payload)


@pytest.mark.parametrize(("owner", "handle"), list(product(StorageOwner, HandleKind)))
def test_a_handle_belongs_to_a_backend_that_keeps_the_conversation(owner: StorageOwner, handle: HandleKind) -> None:
    if (owner is StorageOwner.GATEWAY) == (handle is HandleKind.NONE):
        assert Ownership(owner, handle).opaque_replay is False
    else:
        with pytest.raises(ValueError, match=f"owner {owner} and handle kind {handle} exclude each other"):
            Ownership(owner, handle)
