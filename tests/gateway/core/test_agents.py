"""The agent of a path and a tenant. Over the wire: tests/interaction/test_addresses.py."""

import pytest

from gateway.a2a.errors import InvalidParams, NotFound
from gateway.core.agents import Agents
from tests.interaction.harness import agent

ECHO = agent("echo")
SUPPORT = agent("support", "acme")
BOTH = Agents((ECHO, SUPPORT))


@pytest.mark.parametrize(
    ("path", "tenant"),
    [("support", None), ("support", ""), ("support", "support"), ("support", "acme"), ("acme", "acme"), (None, "acme")],
)
def test_name_and_tenant_mean_the_same_agent(path: str | None, tenant: str | None) -> None:
    assert BOTH.resolve(path, tenant) is SUPPORT


@pytest.mark.parametrize("path", ["nobody", "", "ECHO", "echo/", "../echo"])
def test_another_path_means_nobody(path: str) -> None:
    with pytest.raises(NotFound):
        BOTH.resolve(path, None)


@pytest.mark.parametrize(("path", "tenant"), [("echo", "acme"), ("echo", "nobody"), (None, "nobody"), (None, None)])
def test_a_tenant_that_does_not_fit_is_named(path: str | None, tenant: str | None) -> None:
    with pytest.raises(InvalidParams) as caught:
        BOTH.resolve(path, tenant)

    assert [violation.field for violation in caught.value.violations] == ["tenant"]


def test_two_agents_cannot_answer_to_one_name() -> None:
    with pytest.raises(ValueError, match="two agents have the same name"):
        Agents((ECHO, agent("echo")))
    with pytest.raises(ValueError, match="tenant 'echo' means two agents"):
        Agents((ECHO, agent("other", "echo")))


def test_no_agent_can_stand_where_the_tasks_are() -> None:
    with pytest.raises(ValueError, match="an agent cannot be called 'tasks'"):
        Agents((agent("tasks"),))


def test_the_default_agent_must_exist() -> None:
    with pytest.raises(ValueError, match="no agent is called 'nobody'"):
        Agents((ECHO,), "nobody")


def test_the_default_agent_needs_no_name() -> None:
    agents = Agents((ECHO, SUPPORT), "support")

    assert agents.resolve(None, None) is SUPPORT
    assert list(agents) == [ECHO, SUPPORT]
    assert len(list(agents)) == 2
