"""Tools that run on this machine: `--tool NAME=COMMAND`.

Law: only the commands that the user named run; data of an agent reaches them on their standard input alone.
"""

import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from gateway.a2a.tool_calls import URI
from gateway.cli.console.exits import ExitCode, Stop
from gateway.cli.console.terminal import Screen
from gateway.client.transport import Json

Tools: TypeAlias = Mapping[str, Sequence[str]]
"""Commands by the names of tools."""

_ERROR_LENGTH = 2000
"""Characters of a command's standard error that the agent gets."""


def read_tools(given: Sequence[str]) -> dict[str, list[str]]:
    """Commands by the names of tools, from `NAME=COMMAND`. Raises: Stop (2)."""
    tools: dict[str, list[str]] = {}
    for tool in given:
        name, _, command = tool.partition("=")
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise Stop(ExitCode.USAGE, f"--tool {name}: {error}") from error
        if not words or not name.replace("-", "").replace("_", "").isalnum() or not name.isascii() or len(name) > 64:
            raise Stop(ExitCode.USAGE, f"--tool must look like 'clock=date -u', not {tool!r}")
        if name in tools:
            raise Stop(ExitCode.USAGE, f"--tool {name!r} is given twice")
        tools[name] = words
    return tools


def with_tools(message: dict[str, Json], tools: Tools) -> dict[str, Json]:
    """The message with a declaration of the tools."""
    if not tools:
        return message
    declared = [
        {"name": name, "description": f"Runs {Path(command[0]).name} on the user's machine."}
        for name, command in tools.items()
    ]
    return {**message, "metadata": {**(message.get("metadata") or {}), URI: {"tools": declared}}}


def run_tool(call: Json, tools: Tools, screen: Screen) -> Json:
    """The part that answers the call `{id, name, args}`. Raises: KeyboardInterrupt."""
    command = tools.get(call["name"])
    response = _error(f"There is no tool {call['name']!r} here.") if command is None else _run(command, call, screen)
    data = {"id": call["id"], "name": call["name"], "response": response}
    return {"data": data, "metadata": {"adk_type": "function_response", "type": "function_response"}}


def _run(command: Sequence[str], call: Json, screen: Screen) -> Json:
    screen.note(f"tool: {call['name']} runs {shlex.join(command)}")
    try:
        done = subprocess.run(  # noqa: S603  # the user named the command, and no shell reads it
            command, input=json.dumps(call.get("args") or {}).encode(), capture_output=True, check=False
        )
    except OSError as error:
        screen.note(f"tool: {call['name']} cannot be run: {error.strerror}")
        return _error("The tool could not be run.")
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip()
        screen.note(f"tool: {call['name']} ended with {done.returncode}")
        return _error(sendable_text(reason[-_ERROR_LENGTH:]) or f"The tool ended with {done.returncode}.")
    return {"result": _sendable(_value(done.stdout.decode(errors="replace")))}


def _value(text: str) -> Json:
    """The JSON of an object or a list; any other output as text, without its last line end."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict | list) else text.removesuffix("\n")


def _sendable(value: Json) -> Json:
    """The value without characters that a message cannot hold: a tool may print anything."""
    if isinstance(value, str):
        return sendable_text(value)
    if isinstance(value, list):
        return [_sendable(each) for each in value]
    return {sendable_text(key): _sendable(each) for key, each in value.items()} if isinstance(value, dict) else value


def sendable_text(text: str) -> str:
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _error(message: str) -> Json:
    return {"error": {"code": "failed", "message": message}}
