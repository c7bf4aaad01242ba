"""`init`: the files to start from. Law: an existing file stays as it is."""

import shlex
import sys
from pathlib import Path

from gateway.cli.console.output import ExitCode, Stop, program, reason_of, visible

CONFIGURATION = """\
# The configuration of an A2A gateway. Every key with its default: a2a-gateway check --print
# A value may be ${VARIABLE}, ${VARIABLE:-default} or ${file:path}; keep secrets there and not in this file.
version: 1

# server: {host: 127.0.0.1, port: 8080, public_url: "https://agents.example.com"}
# storage: {url: "sqlite:///./data/gateway.db"}     # relative to this file
# auth: {mode: any_of, api_keys: {enabled: true}}   # then: a2a-gateway keys create NAME
# limits: {request_body: 8MiB, turn_timeout: 15m}

agents:                              # by the name that their addresses carry: /a2a/mine
  mine:                              # a Python function; it gets the history from the gateway
    type: python
    ref: ./my_agent.py:reply
    card:
      name: Mine
      description: Counts the words of a message.

  # openai:                          # OpenAI keeps the conversation
  #   type: openai-responses
  #   model: gpt-5.5
  #   api_key: ${OPENAI_API_KEY}
  #   instructions: Answer briefly.

  # local:                           # Ollama; vLLM, LM Studio and llama.cpp have another base_url
  #   type: openai-chat
  #   base_url: http://localhost:11434/v1
  #   model: llama3.3
"""

AGENT = '''\
"""The agent `mine` of gateway.yaml. After a change, start the gateway again."""

from gateway.agent import ToolCall, ToolResult


async def reply(turn):
    """`turn.text` is what was said, `turn.history` what was said before, `turn.state` a dict that lasts."""
    words = len(turn.text.split())
    yield ToolCall("count", "count_words", {"text": turn.text})
    yield ToolResult("count", {"words": words})
    yield f"That was {words} words, in message {len(turn.history) // 2 + 1} of this conversation."
'''


def write_starter(folder: Path) -> None:
    """Raises: Stop (2) when a file exists or the folder cannot be written."""
    files = {folder / "gateway.yaml": CONFIGURATION, folder / "my_agent.py": AGENT}
    present = [str(file) for file in files if file.exists()]
    if present:
        problem = f"{' and '.join(present)} {'is' if len(present) == 1 else 'are'} there already, nothing was written"
        raise Stop(ExitCode.USAGE, f"init: {problem}; choose another folder: a2a-gateway init FOLDER")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            with file.open("x", encoding="utf-8") as written:
                written.write(text)
    except OSError as error:
        raise Stop(ExitCode.USAGE, f"init: {error.filename} cannot be written: {reason_of(error)}") from error
    configuration = shlex.quote(str(folder / "gateway.yaml"))
    option = "" if configuration == "gateway.yaml" else f" -c {configuration}"
    lines = [
        f"wrote {', '.join(str(file) for file in files)}",
        f"Try: {program()} check{option}",
        f"     {program()} serve{option}",
    ]
    sys.stdout.write(visible("\n".join(lines)) + "\n")
