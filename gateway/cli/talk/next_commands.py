"""The commands that a user types next, as lines to copy."""

from gateway.cli.console.address import AgentAddress
from gateway.cli.talk.questions import Question
from gateway.client.client import WAITING
from gateway.client.transport import ClientError, Refused


def answer_command(address: AgentAddress, task: str, question: Question | None) -> str:
    """The command that answers what the task waits for, or asks for the answer."""
    if not question:
        return address.command("stream", "--task", task, argument="your answer")
    tools = dict.fromkeys(f"{call['name']}=COMMAND" for call in question.calls)
    return address.command("tasks", "watch", *(word for tool in tools for word in ("--tool", tool)), argument=task)


def open_task_lines(address: AgentAddress, task: str, state: str | None, question: Question | None) -> list[str]:
    """How to answer a task that waits, or to follow one that goes on, after the command has ended."""
    if state in WAITING:
        lines = [f"The task {task} waits for an answer.", f"answer: {answer_command(address, task, question)}"]
    else:
        lines = [f"The task {task} goes on.", f"follow: {address.command('tasks', 'watch', argument=task)}"]
    return [*lines, f"cancel: {address.command('tasks', 'cancel', argument=task)}"]


def blocking_task_lines(address: AgentAddress, error: ClientError) -> list[str]:
    """How to answer the task because of which a message was refused, if there is one."""
    if not isinstance(error, Refused) or error.task is None:
        return []
    return [
        f"answer: {address.command('tasks', 'watch', argument=error.task)}",
        f"cancel: {address.command('tasks', 'cancel', argument=error.task)}",
    ]
