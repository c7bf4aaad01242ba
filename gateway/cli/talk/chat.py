"""`chat`: one conversation, line by line.

Law: the prompt waits in the main thread and the agent is served in another, so that neither blocks the other; a failure
ends a message, not the conversation.
"""

import sys
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from gateway.cli.console.address import AgentAddress
from gateway.cli.console.connect import client_errors_stop, stop_for
from gateway.cli.console.output import ExitCode, Output, Stop
from gateway.cli.talk.answers import Responder, read_tools
from gateway.cli.talk.conversation import BackgroundLoop, ChatSession
from gateway.cli.talk.line_input import LineInput
from gateway.cli.talk.message import file_part
from gateway.cli.talk.render import file_line
from gateway.client.client import WAITING
from gateway.client.transport import ClientError, Json
from gateway.foundation.text import did_you_mean

_HELP = """\
A line is a message. Lines that begin with / are for the chat itself:
  /file PATH   send this file along with the next message
  /new         begin a new conversation
  /answer      be asked again what the task waits for
  /cancel      cancel the task that runs or waits
  /raw         show each event as JSON, or as text again
  /help        this list
  /quit        end; as does Ctrl-D
A message that begins with / is written with two: //etc/hosts is a file."""


def run_chat(address: AgentAddress, context: str | None, output: Output, tools: list[str] | None) -> int:
    """Raises: Stop."""
    session = ChatSession(address, context, output, read_tools(tools))
    # The input outlives the loop, which wakes it.
    with (
        client_errors_stop(),
        LineInput(sys.stdin, sys.stdout, sys.stderr) as lines,
        BackgroundLoop(session.open) as background,
    ):
        code = ExitCode.OK
        try:
            _Prompter(session, lines, background).run()
        except KeyboardInterrupt:
            session.screen.report("\n".join(["", *session.running_lines()]))
            code = ExitCode.INTERRUPTED
    for line in session.next_lines():
        session.screen.report(line)
    return code


class _Prompter:
    def __init__(self, session: ChatSession, lines: LineInput, background: BackgroundLoop) -> None:
        self._session = session
        self._lines = lines
        self._background = background
        self._screen = session.screen
        self._files: list[Json] = []
        self._commands: dict[str, Callable[[str], None]] = {
            "file": self._attach,
            "new": lambda _: self._session.start_new(),
            "answer": lambda _: self._repeat_question(),
            "cancel": lambda _: self._start_cancel().result(),
            "raw": lambda _: self._toggle(),
            "help": lambda _: self._screen.report(_HELP),
        }

    def run(self) -> None:
        """Until the last line. Raises: KeyboardInterrupt; Stop for an error in lines from a pipe."""
        if self._lines.typed:
            self._screen.note("/help lists what is not a message; Ctrl-D ends")
        if self._session.conversation.context is not None:
            self._background.start(self._session.resume()).result()
            self._attempt(self._answer_all)
        while (line := self._lines.read("> ")) is not None and line.partition(" ")[0] != "/quit":
            self._attempt(partial(self._take, line))

    def _attempt(self, action: Callable[[], None]) -> None:
        """Shows a problem to a person. Raises: Stop for lines from a pipe, which nobody corrects."""
        try:
            action()
        except Stop as problem:
            if not self._lines.typed:
                raise
            self._screen.report(problem.text)

    def _take(self, line: str) -> None:
        """Runs a command of the chat, or sends a message. Raises: Stop."""
        if line.startswith("/") and not line.startswith("//"):
            word, _, rest = line[1:].partition(" ")
            command = self._commands.get(word)
            if command is None:
                meant = did_you_mean(word, [*self._commands, "quit"])
                hint = f"did you mean /{meant}? " if meant else ""
                raise Stop(ExitCode.USAGE, f"chat: /{word} is no command; {hint}/help lists them")
            command(rest.strip())
            return
        text = line.removeprefix("/") if line.startswith("//") else line
        if text.strip() or self._files:
            self._send_text(text)

    def _attach(self, path: str) -> None:
        if len(path) > 1 and path[0] == path[-1] and path[0] in "'\"":
            path = path[1:-1]
        if not path:
            raise Stop(ExitCode.USAGE, "chat: /file needs a path: /file report.pdf")
        part = file_part(Path(path).expanduser(), "chat: /file")
        self._files.append(part)
        self._screen.note(f"({file_line(part)}, goes along with the next message)")

    def _toggle(self) -> None:
        self._session.output = Output.text if self._session.output is Output.jsonl else Output.jsonl
        self._screen.note("(each event as JSON)" if self._session.output is Output.jsonl else "(text)")

    def _start_cancel(self) -> Future[None]:
        return self._background.start(self._session.cancel())

    def _is_cancel(self, line: str) -> bool:
        canceling = line.strip() == "/cancel"
        if canceling:
            self._start_cancel()
        return canceling

    def _send_text(self, text: str) -> None:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Stop(ExitCode.USAGE, "chat: that line is not UTF-8; send it as a file: /file PATH") from None
        parts: list[Json] = [{"text": text}] if text.strip() else []
        files, self._files = self._files, []
        self._send([*parts, *files], files)
        self._answer_all()

    def _repeat_question(self) -> None:
        conversation = self._session.conversation
        if conversation.task is None or conversation.state not in WAITING:
            self._screen.note("(nothing waits for an answer)")
            return
        with client_errors_stop():
            self._background.start(self._session.show_question(conversation.task)).result()
        if conversation.state in WAITING:
            self._answer_all()
        else:
            self._screen.note(f"(nothing waits for an answer any more: {conversation.words})")

    def _answer_all(self) -> None:
        """Answers for as long as the task waits for what can be answered here."""
        responder = Responder("ask", self._session.tools, self._read_answer, self._screen)
        while (answer := responder.answer(self._session.question)) is not None:
            self._send(answer, [])
        if self._session.question:
            self._session.show_waiting()

    def _read_answer(self, prompt: str) -> str | None:
        """The line typed at a question; None, which leaves it open, at a line for the chat (/...) and at the end."""
        line = self._lines.read_fresh(prompt)
        if line is not None and line.startswith("/"):
            self._lines.put_back(line)
            return None
        return line

    def _send(self, parts: list[Json], files: list[Json]) -> None:
        turn = self._background.start(self._session.send(parts))
        self._wait_for(turn)
        try:
            turn.result()
        except ClientError as error:
            self._session.question = None
            stop = stop_for(error)
            lines = [stop.text, *self._session.blocking_task_lines(error), *self._session.running_lines()]
            if files:
                lines.append("The files did not arrive; attach them again: /file PATH")
            raise Stop(stop.code, "\n".join(lines)) from error

    def _wait_for(self, turn: Future[None]) -> None:
        """The first Ctrl-C cancels the task. Raises: KeyboardInterrupt at the second."""
        canceling = False
        while not turn.done():
            try:
                self._lines.wait_for(turn, self._is_cancel)
            except KeyboardInterrupt:
                if canceling:
                    turn.cancel()
                    raise
                canceling = True
                self._screen.note("(canceling; Ctrl-C again leaves)")
                self._start_cancel()
