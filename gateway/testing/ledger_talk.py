"""A long conversation as commit points. Law: it knows no store."""

from msgspec.structs import replace

from gateway.a2a.model import Json, Part
from gateway.ledger.calls import Fail, NewItem
from gateway.ledger.points import CommitPoint
from gateway.ledger.states import ServiceCallStatus
from gateway.ports.conversation import AssistantItem, HandleKind, Item, StorageOwner
from gateway.testing.ledger_points import ACCEPT, COMPLETE, FINISH, FOLLOW_UP, PREPARE, THREAD, says

_KEPT = replace(THREAD, owner=StorageOwner.GATEWAY, handle_kind=HandleKind.NONE)


def answer(text: str) -> Item:
    return AssistantItem((Part(text=text),))


class Talk:
    """Commit points of one thread that the gateway keeps, whose turns run one after another."""

    def __init__(self) -> None:
        self.points: list[CommitPoint] = []
        self._accepted = 0
        self._ran = 0
        self._generation = 0

    def accept(self, text: str) -> None:
        self._accepted += 1
        number = self._accepted
        first = replace(ACCEPT, thread=_KEPT, key=None) if number == 1 else replace(FOLLOW_UP, thread=_KEPT)
        turn, task = f"turn-{number}", f"task-{number}"
        self.points.append(replace(first, turn=turn, task=task, new_task=True, message=says(text), event=None))

    def run(self, *items: Item, usage: Json = None, weight: int | None = None, fails: bool = False) -> None:
        self._ran += 1
        turn, task, call = (f"{word}-{self._ran}" for word in ("turn", "task", "call"))
        begun = replace(PREPARE, turn=turn, task=task, service_call=call, generation=self._generation, event=None)
        self._generation += 1
        said = tuple(NewItem(item, replayable=not fails) for item in items)
        done: CommitPoint = Fail("thread-1", self._generation, turn, call, ServiceCallStatus.FAILED, "cut", said, 1)
        if not fails:
            same_call = replace(COMPLETE, turn=turn, service_call=call, generation=self._generation, tool_calls=())
            done = replace(same_call, handle_out=None, items=said, sent=(), usage=usage, weight=weight)
            self._generation += 1
        self.points += [begun, done, replace(FINISH, events=None, turn=turn, task=task)]

    def turn(self, text: str, *items: Item) -> None:
        self.accept(text)
        self.run(*items)
