"""The rows that each commit point writes."""

import pytest
from msgspec.structs import replace

from gateway.a2a.model import Role, TaskState
from gateway.ledger.calls import NameCall, NewItem, NewToolCall, Prepare
from gateway.ledger.errors import Conflict
from gateway.ledger.leases import TRIES, CountTries, Release, Renew
from gateway.ledger.points import CommitPoint
from gateway.ledger.states import ToolCallStatus
from gateway.ledger.tasks import Close, EventRow, Reveal
from gateway.ledger.turns import Preferences
from gateway.ports.conversation import HandleKind, OutputItem, StorageOwner
from gateway.testing.ledger_points import (
    ACCEPT,
    APPEND,
    COMPLETE,
    FAIL,
    FINISH,
    FOLLOW_UP,
    OTHER_THREAD,
    PREPARE,
    THREAD,
    says,
)
from tests.storage.conversation import Recorded, rows

HI = '{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}'
MORE = HI.replace("hi", "more")


async def test_a_first_message_makes_context_thread_task_and_turn_in_one_commit(database: Recorded) -> None:
    assert await database.changed_by(ACCEPT) == {
        "context": {
            "context-1": {
                "id": "context-1",
                "tenant": "acme",
                "principal": "ada",
                "public_id": "public-1",
                "state": "open",
                "created_at": 1000,
                "last_used_at": 1000,
            }
        },
        "thread": {
            "thread-1": {
                "id": "thread-1",
                "context": "context-1",
                "agent": "echo",
                "epoch": 1,
                "storage_owner": "backend",
                "handle_kind": "rotating",
                "generation": 0,
                "state": "open",
                "began_at": 1000,
                "began_by": "message",
            }
        },
        "task": {
            "task-1": {
                "id": "task-1",
                "context": "context-1",
                "tenant": "acme",
                "principal": "ada",
                "agent": "echo",
                "visible": 1,
                "created_at": 1000,
                "last_event": 1,
                "state": "TASK_STATE_SUBMITTED",
                "status_at": 1000,
            }
        },
        "turn": {
            "turn-1": {
                "id": "turn-1",
                "task": "task-1",
                "thread": "thread-1",
                "number": 1,
                "status": "accepted",
                "process": "process-1",
                "cancel_asked": 0,
                "displaced": 0,
                "tries": 0,
                "accepted_at": 1000,
            }
        },
        "input": {
            ("turn-1", 0): {
                "turn": "turn-1",
                "ordinal": 0,
                "tenant": "acme",
                "principal": "ada",
                "agent": "echo",
                "message_id": "m",
                "digest": "digest-1",
                "key_kind": "header",
                "key": "key-1",
                "received_at": 1000,
                "event": 1,
                "payload": HI,
            }
        },
        "history_item": {
            ("thread-1", 1): {
                "thread": "thread-1",
                "position": 1,
                "turn": "turn-1",
                "input": 0,
                "kind": "user",
                "replayable": 1,
                "weight": 18,
            }
        },
        "event": {("task-1", 1): {"task": "task-1", "first": 1, "last": 1, "payload": '{"n":1}'}},
    }


async def test_a_task_that_was_hidden_is_shown_and_nothing_else_changes(database: Recorded) -> None:
    await database.ledger.commit(replace(ACCEPT, visible=False))
    assert await database.changed_by(Reveal("task-1")) == {"task": {"task-1": {"visible": 1}}}


@pytest.mark.parametrize(("tries", "shown"), [(TRIES - 1, {}), (TRIES, {"task": {"task-1": {"visible": 1}}})])
async def test_the_task_of_a_turn_that_is_given_up_is_shown(
    database: Recorded, tries: int, shown: dict[str, object]
) -> None:
    await database.ledger.commit(replace(ACCEPT, visible=False), replace(PREPARE, generation=0))
    found = await database.changed_by(CountTries("turn-1", 0, tries))
    assert found == {"turn": {"turn-1": {"tries": tries}}} | shown


async def test_a_follow_up_sets_its_task_to_work_and_opens_the_next_turn(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT)
    assert await database.changed_by(FOLLOW_UP) == {
        "context": {"context-1": {"last_used_at": 2000}},
        "task": {"task-1": {"state": "TASK_STATE_WORKING", "status_at": 2000, "last_event": 2}},
        "turn": {
            "turn-2": {
                "id": "turn-2",
                "task": "task-1",
                "thread": "thread-1",
                "number": 2,
                "status": "accepted",
                "process": "process-1",
                "cancel_asked": 0,
                "displaced": 0,
                "tries": 0,
                "accepted_at": 2000,
            }
        },
        "input": {
            ("turn-2", 0): {
                "turn": "turn-2",
                "ordinal": 0,
                "tenant": "acme",
                "principal": "ada",
                "agent": "echo",
                "message_id": "m",
                "digest": "digest-2",
                "received_at": 2000,
                "event": 2,
                "payload": MORE,
            }
        },
        "history_item": {
            ("thread-1", 2): {
                "thread": "thread-1",
                "position": 2,
                "turn": "turn-2",
                "input": 0,
                "kind": "user",
                "replayable": 1,
                "weight": 20,
            }
        },
        "event": {("task-1", 2): {"task": "task-1", "first": 2, "last": 2, "payload": '{"n":2}'}},
    }


async def test_a_follow_up_clears_what_the_agent_had_asked(database: Recorded) -> None:
    asks = replace(FINISH, state=TaskState.INPUT_REQUIRED, message=says("where to?", Role.AGENT))
    changed = await database.changed_by(ACCEPT, PREPARE, COMPLETE, APPEND, asks)
    assert changed["task"]["task-1"]["status_message"] == (
        '{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"where to?"}]}'
    )
    await database.ledger.commit(replace(FOLLOW_UP, event=None))
    assert rows(database.path)["task"][("task-1",)]["status_message"] is None


async def test_a_thread_of_another_agent_counts_its_own_turns_and_positions(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT)
    changed = await database.changed_by(OTHER_THREAD)
    assert changed["turn"]["turn-9"]["number"] == 1
    assert list(changed["history_item"]) == [("thread-2", 1)]


async def test_the_first_preparation_takes_the_lease_and_raises_the_generation(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT)
    assert await database.changed_by(PREPARE) == {
        "thread": {"thread-1": {"generation": 1, "lease_holder": "process-1", "lease_until": 9000}},
        "task": {"task-1": {"state": "TASK_STATE_WORKING", "status_at": 1100}},
        "turn": {"turn-1": {"status": "running", "base_generation": 1, "started_at": 1100}},
        "service_call": {
            "call-1": {
                "id": "call-1",
                "turn": "turn-1",
                "round": 0,
                "attempt": 0,
                "status": "prepared",
                "prepared_at": 1100,
            }
        },
        "event": {("task-1", 2): {"task": "task-1", "first": 2, "last": 2, "payload": '{"n":2}'}},
    }


@pytest.mark.parametrize(("round_", "attempt"), [(0, 1), (1, 0)])
async def test_a_later_preparation_keeps_the_lease_and_the_generation(
    database: Recorded, round_: int, attempt: int
) -> None:
    await database.ledger.commit(ACCEPT, PREPARE)
    again = replace(
        PREPARE,
        generation=1,
        lease_until=9500,
        service_call="call-2",
        round=round_,
        attempt=attempt,
        handle_in="resp-1",
        now=1150,
        event=None,
    )
    assert await database.changed_by(again) == {
        "thread": {"thread-1": {"lease_until": 9500}},
        "service_call": {
            "call-2": {
                "id": "call-2",
                "turn": "turn-1",
                "round": round_,
                "attempt": attempt,
                "status": "prepared",
                "handle_in": "resp-1",
                "prepared_at": 1150,
            }
        },
    }


@pytest.mark.parametrize(
    "lease",
    [
        pytest.param(None, id="that nobody has"),
        pytest.param(replace(PREPARE, event=None), id="of its own"),
        pytest.param(replace(PREPARE, holder="dead", lease_until=1999, event=None), id="that ran out"),
    ],
)
async def test_a_lease_can_be_taken(database: Recorded, lease: CommitPoint | None) -> None:
    ended = replace(FINISH, state=None, events=None)
    holder = lease.holder if isinstance(lease, Prepare) else ACCEPT.process
    await database.ledger.commit(replace(ACCEPT, process=holder), FOLLOW_UP, *([lease] if lease else []), ended)
    taken = replace(
        PREPARE,
        generation=1 if lease else 0,
        turn="turn-2",
        service_call="call-2",
        now=2000,
        lease_until=9999,
        event=None,
    )
    changed = await database.changed_by(taken)
    assert changed["thread"]["thread-1"]["generation"] == (2 if lease else 1)


async def test_a_pending_handle_is_noted_without_moving_the_thread(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT, PREPARE)
    assert await database.changed_by(NameCall("call-1", "resp-1")) == {
        "service_call": {"call-1": {"status": "started", "pending_handle": "resp-1"}}
    }


async def test_the_name_of_a_call_is_noted_beside_its_handle_and_neither_replaces_the_other(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT, PREPARE, NameCall("call-1", "resp-1"))
    assert await database.changed_by(NameCall("call-1", None, "run-1")) == {
        "service_call": {"call-1": {"run": "run-1"}}
    }
    assert await database.changed_by(NameCall("call-1", None, None)) == {}


async def test_a_completed_call_moves_the_handle_and_records_items_calls_and_what_was_sent(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT, PREPARE)
    shared = {"thread": "thread-1", "turn": "turn-1", "service_call": "call-1", "item_group": "call-1", "replayable": 1}
    assert await database.changed_by(COMPLETE) == {
        "thread": {
            "thread-1": {
                "handle": "resp-1",
                "clean_handle": "resp-1",
                "adapter_state": '{"seen":1}',
                "generation": 2,
            }
        },
        "service_call": {
            "call-1": {"status": "completed", "handle_out": "resp-1", "usage": '{"tokens":7}', "ended_at": 1200}
        },
        "tool_call": {
            "tool-1": {
                "id": "tool-1",
                "service_call": "call-1",
                "sequence": 0,
                "external_id": "fc-1",
                "name": "add",
                "arguments": "{}",
                "executor": "backend",
                "status": "completed",
                "runs_left": 1,
                "approval_required": 0,
                "outcome": "null",
            }
        },
        "history_item": {
            ("thread-1", 1): {"sent_in": "call-1"},
            ("thread-1", 2): shared
            | {
                "position": 2,
                "kind": "call",
                "provider_id": "item-1",
                "tool_call": "tool-1",
                "sent_in": "call-1",
                "weight": 21,
                "payload": '{"kind":"call","call_id":"fc-1","name":"add","arguments":"{}"}',
            },
            ("thread-1", 3): shared
            | {
                "position": 3,
                "kind": "output",
                "tool_call": "tool-1",
                "sent_in": "call-1",
                "weight": 16,
                "payload": '{"kind":"output","call_id":"fc-1","output":""}',
            },
            ("thread-1", 4): shared
            | {
                "position": 4,
                "kind": "assistant",
                "sent_in": "call-1",
                "weight": 21,
                "payload": '{"kind":"assistant","parts":[{"text":"hello"}]}',
            },
        },
    }


async def test_a_handle_with_an_open_call_is_not_a_clean_one(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT, PREPARE)
    waiting = NewToolCall("tool-1", 0, "fc-1", "add", "{}", "gateway", ToolCallStatus.ANNOUNCED, None)
    changed = await database.changed_by(replace(COMPLETE, tool_calls=(waiting,)))
    assert changed["thread"]["thread-1"] == {"handle": "resp-1", "adapter_state": '{"seen":1}', "generation": 2}
    assert "outcome" not in changed["tool_call"]["tool-1"]


async def test_a_call_without_a_state_leaves_the_adapters_state(database: Recorded) -> None:
    await database.ledger.commit(replace(ACCEPT, thread=replace(THREAD, adapter_state={"kept": True})), PREPARE)
    changed = await database.changed_by(replace(COMPLETE, state=None, usage=None))
    assert changed["thread"]["thread-1"] == {"handle": "resp-1", "clean_handle": "resp-1", "generation": 2}
    assert "usage" not in changed["service_call"]["call-1"]


async def test_what_was_sent_before_keeps_the_call_that_sent_it(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT, PREPARE, COMPLETE)
    second = replace(PREPARE, generation=2, service_call="call-2", round=1, handle_in="resp-1", event=None)
    moved = replace(
        COMPLETE,
        generation=2,
        service_call="call-2",
        handle_in="resp-1",
        handle_out="resp-2",
        tool_calls=(),
        items=(),
        sent=(1, 2),
    )
    assert "history_item" not in await database.changed_by(second, moved)


async def test_a_thread_that_the_gateway_owns_never_has_a_handle(database: Recorded) -> None:
    own = replace(THREAD, owner=StorageOwner.GATEWAY, handle_kind=HandleKind.NONE)
    await database.ledger.commit(replace(ACCEPT, thread=own), PREPARE)
    with pytest.raises(Conflict):
        await database.ledger.commit(COMPLETE)
    changed = await database.changed_by(replace(COMPLETE, handle_out=None, state=None))
    assert changed["thread"]["thread-1"] == {"generation": 2}


async def test_an_item_that_the_call_did_not_carry_waits_for_the_next_one(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT, PREPARE)
    refusal = NewItem(OutputItem("fc-1", "no such tool"), unsent=True)
    changed = await database.changed_by(replace(COMPLETE, items=(COMPLETE.items[0], refusal)))
    assert changed["history_item"]["thread-1", 2]["sent_in"] == "call-1"
    assert "sent_in" not in changed["history_item"]["thread-1", 3]


async def test_a_failed_call_keeps_its_output_and_does_not_move_the_handle(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT, PREPARE, NameCall("call-1", "resp-1"))
    assert await database.changed_by(FAIL) == {
        "service_call": {"call-1": {"status": "failed", "error_class": "timed-out", "ended_at": 1200}},
        "history_item": {
            ("thread-1", 2): {
                "thread": "thread-1",
                "position": 2,
                "turn": "turn-1",
                "service_call": "call-1",
                "item_group": "call-1",
                "kind": "assistant",
                "replayable": 0,
                "weight": 19,
                "payload": '{"kind":"assistant","parts":[{"text":"hel"}]}',
            }
        },
    }


async def test_events_are_appended_as_one_row(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT, PREPARE)
    assert await database.changed_by(APPEND) == {
        "event": {("task-1", 5): {"task": "task-1", "first": 3, "last": 5, "payload": '{"n":3}\n{"n":4}\n{"n":5}'}}
    }


async def test_the_last_turn_ends_its_task(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT, PREPARE, COMPLETE, APPEND)
    assert await database.changed_by(FINISH) == {
        "turn": {
            "turn-1": {
                "status": "completed",
                "ended_at": 1300,
                "last_event": 6,
                "messages": "[]",
                "artifacts": '[{"artifact":{"artifactId":"a","parts":[]}}]',
            }
        },
        "task": {"task-1": {"state": "TASK_STATE_COMPLETED", "status_at": 1300, "last_event": 6}},
        "event": {("task-1", 6): {"task": "task-1", "first": 6, "last": 6, "payload": '{"n":6}'}},
    }


async def test_a_turn_with_a_successor_ends_without_ending_the_task(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT, replace(FOLLOW_UP, event=None), PREPARE, COMPLETE, APPEND)
    with pytest.raises(Conflict):
        await database.ledger.commit(FINISH)
    assert await database.changed_by(replace(FINISH, state=None)) == {
        "turn": {
            "turn-1": {
                "status": "completed",
                "ended_at": 1300,
                "last_event": 6,
                "messages": "[]",
                "artifacts": '[{"artifact":{"artifactId":"a","parts":[]}}]',
            }
        },
        "task": {"task-1": {"last_event": 6}},
        "event": {("task-1", 6): {"task": "task-1", "first": 6, "last": 6, "payload": '{"n":6}'}},
    }


@pytest.mark.parametrize("state", [TaskState.CANCELED, TaskState.FAILED, TaskState.REJECTED])
async def test_a_task_that_is_given_up_takes_its_other_turns_along(database: Recorded, state: TaskState) -> None:
    await database.ledger.commit(ACCEPT, replace(FOLLOW_UP, event=None), PREPARE, NameCall("call-1", "resp-1"))
    ended = replace(
        FINISH, status="failed", failure_class="interrupted", state=state, events=None, last_event=2, artifacts=b"[]"
    )
    gone = {"ended_at": 1300, "last_event": 2, "messages": "[]", "artifacts": "[]"}
    assert await database.changed_by(ended) == {
        "turn": {
            "turn-1": gone | {"status": "failed", "failure_class": "interrupted"},
            "turn-2": gone | {"status": "cancelled"},
        },
        "service_call": {"call-1": {"status": "unknown", "ended_at": 1300}},
        "task": {"task-1": {"state": state.value, "status_at": 1300}},
    }


async def test_a_task_that_waits_is_closed_without_a_turn(database: Recorded) -> None:
    asks = replace(FINISH, state=TaskState.INPUT_REQUIRED, message=says("where to?", Role.AGENT))
    await database.ledger.commit(ACCEPT, PREPARE, COMPLETE, APPEND, asks)
    close = Close("task-1", TaskState.CANCELED, EventRow("task-1", 7, 7, b'{"n":7}'), 7, 1400)
    assert await database.changed_by(close) == {
        "task": {
            "task-1": {"state": "TASK_STATE_CANCELED", "status_message": None, "status_at": 1400, "last_event": 7}
        },
        "event": {("task-1", 7): {"task": "task-1", "first": 7, "last": 7, "payload": '{"n":7}'}},
    }
    with pytest.raises(Conflict):
        await database.ledger.commit(replace(close, event=None))


async def test_leases_are_renewed_and_given_up_by_their_holder_only(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT, PREPARE)
    assert await database.changed_by(Renew(("thread-1",), "stranger", 1), Release("thread-1", "stranger")) == {}
    assert await database.changed_by(Renew(("thread-1",), "process-1", 9900)) == {
        "thread": {"thread-1": {"lease_until": 9900}}
    }
    assert await database.changed_by(Release("thread-1", "process-1")) == {
        "thread": {"thread-1": {"lease_holder": None, "lease_until": None}}
    }


async def test_what_a_message_asks_for_is_stored_with_it_and_nothing_where_it_asks_for_nothing(
    database: Recorded,
) -> None:
    asked = Preferences(("text/plain",), frozenset({"urn:x"}))
    await database.ledger.commit(ACCEPT, replace(FOLLOW_UP, preferences=asked))
    assert rows(database.path)["input"]["turn-1", 0]["preferences"] is None
    assert await database.ledger.preferences("turn-1") == await database.ledger.preferences("nobody's") == Preferences()
    assert await database.ledger.preferences("turn-2") == asked


async def test_a_message_id_may_come_again(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT)
    await database.ledger.commit(FOLLOW_UP)
    assert [row["message_id"] for row in rows(database.path)["input"].values()] == ["m", "m"]
