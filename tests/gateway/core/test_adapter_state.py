"""The adapter state of a thread, read by adapters of other versions."""

from typing import Any

import pytest

from gateway.core.ownership import adapter_state, state_is_newer
from gateway.ledger.threads import ThreadRecord
from gateway.ports.adapter import AdapterError
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner
from tests.support.scripted import ScriptedAdapter


def adapter(version: int) -> ScriptedAdapter:
    return ScriptedAdapter(Ownership(StorageOwner.GATEWAY, HandleKind.NONE, state_version=version))


class Reading(ScriptedAdapter):
    """Reads every version but the first."""

    def __init__(self) -> None:
        super().__init__(Ownership(StorageOwner.GATEWAY, HandleKind.NONE, state_version=3))

    def read_state(self, state: Any, version: int) -> Any:
        if version == 1:
            raise ValueError("too old")
        return {"was": state, "of": version}


def thread(state: Any, version: int = 1) -> ThreadRecord:
    return ThreadRecord(
        id="thread-1",
        context="context-1",
        agent="echo",
        epoch=1,
        owner=StorageOwner.GATEWAY,
        handle_kind=HandleKind.NONE,
        handle=None,
        generation=0,
        adapter_state=state,
        state_version=version,
    )


def test_a_state_of_the_adapters_own_version_is_given_as_it_is() -> None:
    assert adapter_state(adapter(2), thread({"a": 1}, 2)) == {"a": 1}


def test_an_older_one_is_read_through_the_adapter() -> None:
    assert adapter_state(Reading(), thread({"a": 1}, 2)) == {"was": {"a": 1}, "of": 2}


def test_an_adapter_that_reads_no_older_one_gets_it_as_it_is() -> None:
    assert adapter_state(adapter(2), thread({"a": 1})) == {"a": 1}


def test_one_that_it_cannot_read_is_an_error_and_not_no_state() -> None:
    with pytest.raises(AdapterError, match="of version 1 cannot be read: too old"):
        adapter_state(Reading(), thread({"a": 1}))


def test_a_newer_one_is_an_error() -> None:
    assert state_is_newer(adapter(1), thread({"a": 1}, 2))
    with pytest.raises(AdapterError, match="of version 2, newer than the adapter's 1"):
        adapter_state(adapter(1), thread({"a": 1}, 2))


def test_where_there_is_no_state_its_version_does_not_matter() -> None:
    assert not state_is_newer(adapter(1), thread(None, 2))
    assert adapter_state(adapter(1), thread(None, 2)) is None
