"""Backends are asked for descriptions in the background: at the start, now and then, less often where they do not answer."""

import asyncio
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from gateway.config.agents import CardConfig
from gateway.core.agents import Agent, Agents
from gateway.core.described_card import AgentCards, DescribedCard
from gateway.foundation.clock import Clock
from gateway.http.card_refresh import CardRefresh, keep_descriptions
from gateway.http.cards import Cards, build_card
from gateway.ports.adapter import AdapterError, ErrorClass
from gateway.ports.capabilities import Backend, Description
from tests.gateway.http.test_documents import STARTED
from tests.interaction import asgi
from tests.interaction.harness import URL, Unused
from tests.support.core import soon, until
from tests.support.describing_adapter import Answer, DescribingAdapter
from tests.support.scripted import Pause

DOWN = AdapterError(ErrorClass.UNREACHABLE, "connection refused")
FIRST, SECOND = Description(name="First"), Description(name="Second")
LATER = int(STARTED.timestamp() * 1000) + 3_600_000


@dataclass
class Time:
    monotonic: float = 0.0
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(now=lambda: LATER, monotonic=lambda: self.monotonic)


def agent(*answers: Answer, name: str = "a") -> Agent:
    def make(told: Description | None) -> AgentCards:
        return AgentCards(build_card(name, CardConfig(), URL, described=told))

    cards = make(None)
    adapter = DescribingAdapter(answers=answers)
    return Agent(name, cards.public, adapter, described=DescribedCard(make, cards), backend=Backend("http://described"))


def asked(agent: Agent) -> int:
    assert isinstance(agent.adapter, DescribingAdapter)
    return agent.adapter.asked


def refresh(time: Time, *agents: Agent) -> CardRefresh:
    found = Agents(agents)
    return CardRefresh(lambda: found, time.clock, 300.0, lambda: 1.0)


# --- no answer ---


async def test_a_backend_that_is_down_leaves_the_card_and_is_asked_less_and_less_often() -> None:
    time, described = Time(), agent(DOWN)
    asking = refresh(time, described)
    waits = []
    with capture_logs() as logs:
        for _ in range(9):
            pause = await asking.ask_due()
            assert pause is not None
            waits.append(pause)
            time.monotonic += pause
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert (described.public_card.name, asked(described)) == ("a", 9)
    told = [(line["log_level"], line["event"], line["detail"]) for line in logs]
    again = ("card.not-described", "connection refused")
    assert told == [("warning", *again), *[("debug", *again)] * 8]


@pytest.mark.parametrize("answer", [RuntimeError("broken"), TypeError()], ids=repr)
async def test_an_adapter_that_breaks_stops_neither_the_others_nor_the_next_question(answer: Exception) -> None:
    broken, other = agent(answer, FIRST, name="broken"), agent(SECOND, name="other")
    time = Time()
    asking = refresh(time, broken, other)
    assert await asking.ask_due() == 5
    assert (broken.public_card.name, other.public_card.name) == ("broken", "Second")
    time.monotonic = 5
    await asking.ask_due()
    assert broken.public_card.name == "First"


async def test_a_card_stays_while_its_backend_is_away() -> None:
    time, described = Time(), agent(FIRST, DOWN, SECOND)
    asking = refresh(time, described)
    names = []
    for _ in range(3):
        time.monotonic += await asking.ask_due() or 0
        names.append(described.public_card.name)
    assert names == ["First", "First", "Second"]


async def test_a_backend_that_is_silent_holds_up_nobody() -> None:
    silence = Pause()
    silent, other = agent(silence, FIRST, name="silent"), agent(SECOND, name="other")
    asking = refresh(Time(), silent, other)
    async with asyncio.TaskGroup() as group:
        sweep = group.create_task(asking.ask_due())
        await soon(silence.reached.wait())
        assert (silent.public_card.name, sweep.done()) == ("silent", False)
        silence.go.set()
    assert silent.public_card.name == "First"


# --- answers ---


async def test_it_is_asked_again_after_the_interval_and_not_before() -> None:
    time, described = Time(), agent(FIRST)
    asking = refresh(time, described)
    assert await asking.ask_due() == 300
    time.monotonic = 299
    assert await asking.ask_due() == 1
    assert asked(described) == 1
    time.monotonic = 300
    await asking.ask_due()
    assert asked(described) == 2


async def test_processes_that_began_together_do_not_ask_together() -> None:
    described = agent(FIRST)
    agents = Agents((described,))

    async def wait(chance: float) -> float | None:
        return await CardRefresh(lambda: agents, Time().clock, 300.0, lambda: chance).ask_due()

    assert [await wait(chance) for chance in (0.0, 0.5, 1.0)] == [240, 270, 300]


async def test_agents_that_no_backend_describes_are_not_asked() -> None:
    plain = Agent("a", build_card("a", CardConfig(), URL), Unused())
    assert await refresh(Time(), plain).ask_due() is None


async def test_the_job_asks_at_once_and_when_it_is_woken() -> None:
    first, second = agent(FIRST, name="a"), agent(SECOND, name="b")
    force = [Agents((first,))]
    asking = CardRefresh(lambda: force[0], Clock(), 300.0)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(asking.run())
        await until(lambda: first.public_card.name == "First")
        force[0] = Agents((second,))
        asking.wake()
        await until(lambda: second.public_card.name == "Second")
        task.cancel()
    assert (asked(first), asked(second)) == (1, 1)


# --- what is served ---


async def test_the_served_card_follows_with_a_tag_and_a_date_of_its_own_and_asks_no_backend() -> None:
    described, plain = agent(FIRST), Agent("b", build_card("b", CardConfig(), URL), Unused())
    agents = Agents((described, plain), "a")
    cards = Cards(agents, URL, STARTED)
    before, listed = await asgi.request(cards, "GET", "/"), await asgi.request(cards.serve_list, "GET", "/a2a")
    assert before.json["name"] == "a"
    await CardRefresh(lambda: agents, Time().clock, 300.0).ask_due()
    after, relisted = await asgi.request(cards, "GET", "/"), await asgi.request(cards.serve_list, "GET", "/a2a")
    assert after.json["name"] == "First"
    assert [each["name"] for each in relisted.json["agents"]] == ["First", "b"]
    for old, new in ((before, after), (listed, relisted)):
        assert old.header("etag") != new.header("etag")
        assert old.header("last-modified") != new.header("last-modified")
    known = [("if-none-match", after.header("etag") or "")]
    assert (await asgi.request(cards, "GET", "/", headers=known)).status == 304
    assert asked(described) == 1


# --- a reload ---


def test_a_reload_keeps_the_description_of_an_agent_with_the_same_backend() -> None:
    former, following, other = agent(FIRST), agent(FIRST), agent(FIRST, name="b")
    assert former.described is not None
    former.described.tell(FIRST, 1)
    keep_descriptions(Agents((former,)), Agents((following, other)), 2)
    assert (following.public_card.name, other.public_card.name) == ("First", "b")


def test_and_not_that_of_another_backend() -> None:
    former, following = agent(FIRST), agent(FIRST)
    moved = Agent(
        "a", following.card, following.adapter, described=following.described, backend=Backend("http://moved")
    )
    assert former.described is not None
    former.described.tell(FIRST, 1)
    keep_descriptions(Agents((former,)), Agents((moved,)), 2)
    assert moved.public_card.name == "a"
