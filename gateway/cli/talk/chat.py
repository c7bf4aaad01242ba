"""An event loop beside a main thread that waits for its user. Law: what is opened in it is closed in it.

`chat`: one conversation, line by line. Law: the prompt waits in the main thread and the agent is talked to in another,
so that neither holds up the other; what breaks ends a message, not the conversation.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from gateway.cli.console.connect import Reach, stop, told_plainly
from gateway.cli.console.exits import ExitCode, Stop
from gateway.cli.console.parameters import Approve, Output
from gateway.cli.console.terminal import Screen
from gateway.cli.talk.approvals import Answering
from gateway.cli.talk.conversation import Chat
from gateway.cli.talk.line_input import Lines
from gateway.cli.talk.render import described_file
from gateway.cli.talk.send import file_part
from gateway.client.client import WAITING
from gateway.client.transport import ClientError
from gateway.foundation.text import did_you_mean

T = TypeVar("T")


class Background:
    """A loop in a thread of its own, for as long as the block lasts. `opening` is open in it meanwhile."""

    def __init__(self, opening: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        self._opening = opening
        self._opened: Future[None] = Future()
        self._begun = threading.Event()
        self._main: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._live, name="background")

    def __enter__(self) -> Self:
        """Raises: what opening raises; KeyboardInterrupt."""
        self._thread.start()
        self._begun.wait()
        try:
            self._opened.result()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _end(self) -> None:
        if self._main is not None:
            with suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join()

    def _live(self) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self._stay_open())

    async def _stay_open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        self._begun.set()
        try:
            async with self._opening():
                self._opened.set_result(None)
                await asyncio.Event().wait()
        except Exception as error:  # noqa: BLE001 - whoever opened it is told, in the other thread
            if not self._opened.done():
                self._opened.set_exception(error)


Json = Any

_PROMPT = "> "
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


def talk_on(there: Reach, context: str | None, output: Output, tools: Mapping[str, Sequence[str]] | None = None) -> int:
    """`tools` run on this machine, by their names. Raises: Stop."""
    screen = Screen(sys.stdout, sys.stderr)
    chat = Chat(there, screen, context, output, tools or {})
    # The lines outlast the loop, which wakes them.
    with told_plainly(), Lines(sys.stdin, sys.stdout, sys.stderr) as lines, Background(chat.opened) as background:
        prompter = _Prompter(chat, lines, background, screen, tools or {})
        try:
            prompter.run()
        except KeyboardInterrupt:
            screen.tell("\n".join(["", *chat.left_behind()]))
            code = ExitCode.INTERRUPTED
        else:
            code = ExitCode.OK
    for line in chat.farewell():
        screen.tell(line)
    return code


class _Prompter:
    def __init__(
        self,
        chat: Chat,
        lines: Lines,
        background: Background,
        screen: Screen,
        tools: Mapping[str, Sequence[str]],
    ) -> None:
        self._chat = chat
        self._tools = tools
        self._lines = lines
        self._background = background
        self._screen = screen
        self._files: list[Json] = []
        self._commands: dict[str, Callable[[str], None]] = {
            "file": self._attach,
            "new": lambda _: self._chat.begin_anew(),
            "answer": lambda _: self._ask_again(),
            "cancel": lambda _: self._cancel(),
            "raw": lambda _: self._toggle(),
            "help": lambda _: self._screen.tell(_HELP),
        }

    def run(self) -> None:
        """Until the last line. Raises: KeyboardInterrupt, Stop where nobody is there who could try again."""
        if self._lines.typed:
            self._screen.note("/help lists what is not a message; Ctrl-D ends")
        if self._chat.standing.context is not None:
            self._background.start(self._chat.come_back()).result()
            self._answer_all()
        while (line := self._lines.next(_PROMPT)) is not None:
            if line.startswith("/") and not line.startswith("//"):
                word, _, rest = line[1:].partition(" ")
                if word == "quit":
                    return
                self._obey(word, rest.strip())
                continue
            text = line.removeprefix("/") if line.startswith("//") else line
            if text.strip() or self._files:
                self._say(text)

    def _obey(self, word: str, rest: str) -> None:
        command = self._commands.get(word)
        if command is None:
            meant = did_you_mean(word, [*self._commands, "quit"])
            hint = f"did you mean /{meant}? " if meant else ""
            self._complain(Stop(ExitCode.USAGE, f"chat: /{word} is no command; {hint}/help lists them"))
        else:
            command(rest)

    def _complain(self, problem: Stop) -> None:
        """Raises: `problem` where nobody is there who could do better."""
        if not self._lines.typed:
            raise problem
        self._screen.tell(problem.text)

    def _attach(self, path: str) -> None:
        if len(path) > 1 and path[0] == path[-1] and path[0] in "'\"":
            path = path[1:-1]
        if not path:
            self._complain(Stop(ExitCode.USAGE, "chat: /file needs a path: /file report.pdf"))
            return
        try:
            part = file_part(Path(path).expanduser(), "chat: /file")
        except Stop as problem:
            self._complain(problem)
            return
        self._files.append(part)
        self._screen.note(f"({described_file(part)}, goes along with the next message)")

    def _toggle(self) -> None:
        self._chat.output = Output.text if self._chat.output is Output.jsonl else Output.jsonl
        self._screen.note("(each event as JSON)" if self._chat.output is Output.jsonl else "(text)")

    def _cancel(self) -> None:
        self._background.start(self._chat.cancel()).result()

    def _urgent(self, line: str) -> bool:
        if line.strip() != "/cancel":
            return False
        self._background.start(self._chat.cancel())
        return True

    def _say(self, text: str) -> None:
        try:
            text.encode()
        except UnicodeEncodeError:
            self._complain(Stop(ExitCode.USAGE, "chat: that line is not UTF-8; send it as a file: /file PATH"))
            return
        parts: list[Json] = [{"text": text}] if text.strip() else []
        files, self._files = self._files, []
        self._send([*parts, *files], files)
        self._answer_all()

    def _ask_again(self) -> None:
        standing = self._chat.standing
        if standing.task is None or standing.state not in WAITING:
            self._screen.note("(nothing waits for an answer)")
            return
        try:
            self._background.start(self._chat.look(standing.task)).result()
        except ClientError as error:
            self._complain(stop(error))
            return
        if standing.state in WAITING:
            self._answer_all()
        else:
            self._screen.note(f"(nothing waits for an answer any more: {standing.word})")

    def _answer_all(self) -> None:
        """As long as the task waits for what can be answered here."""
        answering = Answering(Approve.ask, self._tools, self._answer, self._screen)
        while (answer := answering.parts(self._chat.asked)) is not None:
            self._send(answer, [])
        if self._chat.asked:
            self._chat.tell_waiting()

    def _answer(self, prompt: str) -> str | None:
        """A line that begins with / is for the chat, as is the end of a person's lines: what is asked is left open."""
        line = self._lines.fresh(prompt)
        if line is not None and line.startswith("/"):
            self._lines.again(line)
            return None
        return line

    def _send(self, parts: list[Json], files: list[Json]) -> None:
        turn = self._background.start(self._chat.say(parts))
        self._wait_for(turn)
        try:
            turn.result()
        except ClientError as error:
            self._chat.asked = None
            reason = stop(error)
            dropped = ["The files did not arrive; attach them again: /file PATH"] if files else []
            self._complain(Stop(reason.code, "\n".join([reason.text, *self._chat.ways_on(error), *dropped])))

    def _wait_for(self, turn: Future[None]) -> None:
        """Raises: KeyboardInterrupt where the user does not want to wait until the task is canceled, either."""
        asked = False
        while not turn.done():
            try:
                self._lines.until(turn, self._urgent)
            except KeyboardInterrupt:
                if asked:
                    turn.cancel()
                    raise
                asked = True
                self._screen.note("(canceling; Ctrl-C again leaves)")
                self._background.start(self._chat.cancel())
