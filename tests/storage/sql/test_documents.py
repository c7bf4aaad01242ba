"""A context that is exported is the same after its import into another database."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gateway.a2a.model import TaskState, TaskStatus, TaskStatusUpdateEvent
from gateway.ledger.calls import NameCall, NewItem, NewToolCall
from gateway.ledger.documents import ContextDocument, Import
from gateway.ledger.events import entry
from gateway.ledger.states import ToolCallStatus
from gateway.ledger.tasks import Usage
from gateway.ledger.threads import Caller
from gateway.ports.conversation import OpaqueItem
from gateway.testing.ledger_points import ACCEPT, ADA, APPEND, COMPLETE, FAIL, FINISH, PREPARE, says
from storage.schema.tables import Row
from storage.sql.documents import NOT_EXPORTED
from tests.storage.conversation import Recorded, recorded, rows

EVE = Caller("eve", "elsewhere")
VALUE = {"ü": [None, 10**19, 1e-9, ""], "": {}}


def lines(first: int, last: int) -> bytes:
    updates = (
        TaskStatusUpdateEvent(
            task_id="task-1",
            context_id="public-1",
            status=TaskStatus(state=TaskState.WORKING),
            metadata={"n": number, "v": VALUE},
        )
        for number in range(first, last + 1)
    )
    return b"\n".join(entry(update) for update in updates)


def logged(row: Any) -> Any:
    return replace(row, payload=lines(row.first, row.last))


HISTORY = (
    replace(ACCEPT, event=logged(ACCEPT.event)),
    replace(PREPARE, event=logged(PREPARE.event)),
    NameCall("call-1", "resp-1", "run-1"),
    replace(
        COMPLETE,
        items=(*COMPLETE.items, NewItem(OpaqueItem("future", VALUE), "item-2", unsent=True)),
        tool_calls=(
            *COMPLETE.tool_calls,
            NewToolCall("tool-2", 1, "fc-2", "wait", "{", "client", ToolCallStatus.ANNOUNCED, None),
        ),
        state_version=3,
    ),
    replace(APPEND, events=logged(APPEND.events)),
    replace(
        FINISH,
        state=TaskState.INPUT_REQUIRED,
        message=says("which?"),
        events=logged(FINISH.events),
        usage=Usage(input_tokens=5, total_tokens=7),
        artifacts=msgspec.json.encode([{"artifact": {"artifactId": "a", "parts": [{"data": VALUE}]}}]),
    ),
)


@pytest.fixture
async def other(tmp_path: Path) -> AsyncGenerator[Recorded, None]:
    async with recorded(tmp_path / "other.db") as other:
        yield other


async def exported(database: Recorded) -> ContextDocument:
    await database.ledger.commit(*HISTORY)
    document = await database.ledger.export(ADA, "public-1")
    assert document is not None
    return document


def said(database: Recorded) -> dict[str, Any]:
    """All rows, without their owner and the columns of a process."""
    own = {"last_used_at", "expires_at"}
    found = {
        table: {
            key: {name: value for name, value in row.items() if name not in NOT_EXPORTED.get(table, set()) | own}
            for key, row in of_table.items()
        }
        for table, of_table in rows(database.path).items()
    }
    events = sorted((row["last"], row["payload"]) for row in found.pop("event").values())
    return {**found, "event": "\n".join(str(payload) for _, payload in events).split("\n")}


async def test_an_imported_context_is_row_for_row_the_exported_one(database: Recorded, other: Recorded) -> None:
    document = await exported(database)
    travelled = msgspec.json.decode(msgspec.json.encode(document), type=ContextDocument)
    await other.ledger.commit(Import(EVE, travelled, 7777))
    assert said(other) == said(database)
    [context] = rows(other.path)["context"].values()
    assert (context["principal"], context["tenant"], context["last_used_at"]) == ("eve", "elsewhere", 7777)
    assert {row["principal"] for row in rows(other.path)["task"].values()} == {"eve"}
    assert {row["principal"] for row in rows(other.path)["input"].values()} == {"eve"}
    weights = [[row["weight"] for row in rows(each.path)["history_item"].values()] for each in (database, other)]
    assert weights[0] == weights[1]


async def test_a_failed_turn_is_exported_with_its_output(database: Recorded, other: Recorded) -> None:
    failed = replace(HISTORY[-1], state=TaskState.FAILED, status="failed", failure_class="timed-out")
    await database.ledger.commit(*HISTORY[:3], FAIL, HISTORY[4], failed)
    document = await database.ledger.export(ADA, "public-1")
    assert document is not None
    await other.ledger.commit(Import(EVE, document, 7777))
    assert said(other) == said(database)


def test_every_column_is_exported_or_excluded_on_purpose() -> None:
    """A new column belongs into `gateway.ledger.documents`, or into this list."""
    known = {
        "context": "id public_id state created_at last_used_at",
        "thread": "id context agent epoch storage_owner handle_kind handle clean_handle generation state state_version "
        "adapter_state began_at began_by",
        "task": "id context agent visible created_at last_event state status_at status_message",
        "turn": "id task thread number base_generation status failure_class displaced accepted_at ended_at last_event messages "
        "artifacts usage started_at",
        "input": "turn ordinal message_id digest key_kind key received_at event payload",
        "service_call": "id turn round attempt status error_class handle_in pending_handle handle_out prepared_at ended_at "
        "usage weight run first_at",
        "tool_call": "id service_call sequence external_id name executor server status digest approval_required "
        "approval_decision approval_by approval_at approval_expires_at approval_consumed_at arguments outcome "
        "asked_at started_at ended_at",
        "history_item": "thread position turn input service_call tool_call kind provider_id item_group replayable sent_in "
        "payload refused_in",
        "event": "task last first payload",
    }
    tables = {
        name: table
        for name, table in Row.metadata.tables.items()
        if name
        not in {
            *(
                "api_key",
                "secret",
                "delete_job",
                "withdrawal",
                "process",
                "duty",
                "quota_use",
                "push_config",
                "turn_note",
            ),
        }
    }
    assert {
        name: [column.name for column in table.columns if column.name not in NOT_EXPORTED.get(name, set())]
        for name, table in tables.items()
    } == {name: columns.split() for name, columns in known.items()}
