"""Problems that show when the parts of a configuration are built."""

from pathlib import Path

import pytest

from gateway.cli.serve.check import build_problems, with_positions
from gateway.cli.serve.sources import read_file
from gateway.config.problems import Problem
from tests.gateway.cli.conftest import CommandLine

WORKS = "  works: {type: python, ref: 'gateway.cli.demo.agent:reply'}\n"


async def wrong(folder: Path, text: str) -> list[str]:
    file = folder / "gateway.yaml"
    file.write_text(f"version: 1\n{text}")
    problems = with_positions(file, await build_problems(str(file), read_file(file, {})))
    return [str(problem).removeprefix(f"{file}:") for problem in problems]


async def test_a_working_configuration_has_no_problems(tmp_path: Path) -> None:
    tools = "tools:\n  order: {type: http, url: 'http://localhost/{id}', description: One order.}\n"
    agent = "  asks: {type: openai-chat, model: m, base_url: 'http://localhost:1/v1', tools: [order]}\n"
    assert await wrong(tmp_path, f"{tools}agents:\n{WORKS}{agent}") == []


async def test_everything_that_cannot_be_built_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def reply(text):\n    return text\n")
    text = (
        "tools:\n  clock: {type: python, ref: './none.py:now'}\n"
        "agents:\n  mine: {type: python, ref: './mine.py:answer'}\n"
        f"{WORKS}  asks: {{type: openai-chat, model: m, base_url: 'http://localhost:1/v1', tools: [clock]}}\n"
    )
    first, second = await wrong(tmp_path, text)
    assert first.startswith("3:3: tools.clock: './none.py:now': there is no file ")
    assert (
        second == "5:3: agents.mine: './mine.py:answer': './mine.py' has no 'answer'; check the name behind the colon"
    )


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (
            "{type: openai-responses, model: m, api_key: k, conversation: true, history: {persistence: per_turn}}",
            "4:3: agents.tasks-2: history.persistence: per_turn cannot be had with a conversation",
        ),
        (
            "{type: openai-responses, model: m, api_key: k, conversation: true, busy_context: rollback}",
            "4:3: agents.tasks-2: busy_context: rollback cannot be had with a conversation",
        ),
        (
            "{type: python, ref: 'gateway.cli.demo.agent:reply', card: {tenant: tasks}}",
            "2:1: agents: an agent cannot be called 'tasks'",
        ),
        (
            "{type: python, ref: 'gateway.cli.demo.agent:reply', card: {tenant: works}}",
            "2:1: agents: tenant 'works' means two agents",
        ),
    ],
)
async def test_what_serve_refuses_check_refuses(
    tmp_path: Path, agent: str, words: str, command_line: CommandLine
) -> None:
    [problem] = await wrong(tmp_path, f"agents:\n{WORKS}  tasks-2: {agent}\n")
    assert problem.startswith(words)
    file = str(tmp_path / "gateway.yaml")
    checked = await command_line("check", "-c", file)
    served = await command_line("serve", "-c", file, "--port", "0")
    assert (checked.code, served.code) == (78, 78)
    assert checked.err == served.err


def test_a_problem_outside_the_file_has_no_line(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    problem = Problem(str(file), None, None, "agents.other", "is odd")
    assert with_positions(file, [problem]) == [problem]
    file.write_text("agents: {a: 1}\n")
    assert with_positions(file, [problem]) == [problem]
