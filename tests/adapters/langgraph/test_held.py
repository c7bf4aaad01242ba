"""How much of a request a thread holds."""

from adapters.langgraph.content import message_id
from adapters.langgraph.held import held_items
from adapters.langgraph.interrupts import Action, Asked
from adapters.langgraph.state import ThreadState
from adapters.langgraph.wire import Interrupt, Message
from gateway.a2a import model
from gateway.a2a.model import Part, Role
from gateway.ports.conversation import AssistantItem, Item, OutputItem, UserItem

ASKED = Asked("i1", "decisions", (Action("pay", "{}"),))
WAITS = ThreadState("a1", "task-1", "run", (ASKED,))
ASKS = ThreadState("a1", "task-1", "run", (Asked("i2"),))
YES = OutputItem("run/i1/0", {}, approved=True)


def user(words: str, task: str | None = None) -> UserItem:
    return UserItem(model.Message(message_id=words, role=Role.USER, parts=(Part(text=words),), task_id=task))


def human(item: UserItem) -> Message:
    return Message("human", item.message.parts[0].text or "", message_id(item.message))


def ai(name: str) -> Message:
    return Message("ai", name, name)


def held(items: list[Item], messages: list[Message], state: ThreadState, *open_: str) -> tuple[int, list[str | None]]:
    count, after = held_items(items, messages, [Interrupt(name) for name in open_], state)
    return count, [message.id for message in after]


ONE, TWO, THREE = user("one"), user("two"), user("three")
BEFORE = [human(ONE), ai("a1")]
STATE = ThreadState("a1")


def test_messages_and_the_answer_after_them() -> None:
    assert held([TWO], BEFORE, STATE) == (0, [])
    assert held([TWO], [*BEFORE, human(TWO)], STATE) == (1, [])
    assert held([TWO, THREE], [*BEFORE, human(TWO), ai("a2")], STATE) == (1, ["a2"])
    assert held([TWO, THREE], [*BEFORE, human(TWO), human(THREE), ai("a2")], STATE) == (2, ["a2"])


def test_an_answer_to_somebody_else_is_not_that_of_the_request() -> None:
    assert held([TWO], [*BEFORE, human(THREE), ai("x"), human(TWO), ai("a2")], STATE) == (1, ["a2"])


def test_a_conversation_that_was_told_anew_is_held_with_its_last_message() -> None:
    told: list[Item] = [ONE, AssistantItem((Part(text="A"),)), TWO]
    assert held(told, [human(ONE), ai("x"), human(TWO), ai("a2")], ThreadState()) == (3, ["a2"])


def test_a_decision_is_held_when_its_question_is_not_open_any_more() -> None:
    assert held([YES], BEFORE, WAITS, "i1") == (0, [])
    assert held([YES], [*BEFORE, ai("a2")], WAITS) == (1, ["a2"])
    assert held([YES, TWO], [*BEFORE, ai("a2")], WAITS, "i9") == (1, ["a2"])
    assert held([YES, TWO], [*BEFORE, human(TWO), ai("a2")], WAITS) == (2, ["a2"])


def test_an_answer_is_held_when_its_question_is_not_open_any_more() -> None:
    assert held([user("Oslo", "task-1")], BEFORE, ASKS, "i2") == (0, [])
    assert held([user("Oslo", "task-1")], [*BEFORE, ai("a2")], ASKS) == (1, ["a2"])
    assert held([user("Oslo", "task-2")], [*BEFORE, ai("a2")], ASKS) == (0, ["a2"])
