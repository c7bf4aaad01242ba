"""`chat`: one conversation, line by line. Law: the prompt waits in the main thread and the agent is talked to in another,
so that neither holds up the other; what breaks ends a message, not the conversation."""

import asyncio
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.cli.answering import Answering, Question, declaring, question
from gateway.cli.background import Background
from gateway.cli.exits import ExitCode, Stop
from gateway.cli.failures import stop, told_plainly
from gateway.cli.lines import Lines
from gateway.cli.message import compose, file_part
from gateway.cli.parameters import Approve, Output
from gateway.cli.reaching import Reach, connected
from gateway.cli.talking import goes_on, in_the_way
from gateway.cli.terminal import Screen, json_text
from gateway.cli.view import Standing, TextView, described_file
from gateway.client import ENDED, WAITING, Client, Retry
from gateway.client_wire import ClientError, Refused, text_at
from gateway.config_problem import did_you_mean

Json = Any

PATIENCE = Retry(tries=10)
"""About half a minute: a gateway that starts anew is back by then."""
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


# --- in the event loop ------------------------------------------------------------------------------------------------


class Chat:
    """The conversation with the agent."""

    def __init__(
        self,
        there: Reach,
        screen: Screen,
        context: str | None,
        output: Output,
        tools: Mapping[str, Sequence[str]],
    ) -> None:
        self.standing = Standing(context=context)
        self.asked: Question | None = None
        """What the task waits for, as far as it can be answered here."""
        self.output = output
        self._tools = tools
        self._there = there
        self._screen = screen
        self._view = TextView(screen)
        self._lost = False
        self._talks = False
        self._cancels = False
        self._client: Client

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Connected with the agent, for as long as the block lasts. Raises: ClientError."""
        async with connected(self._there, PATIENCE, self._pause) as client:
            self._client = client
            yield

    async def _pause(self, seconds: float) -> None:
        if not self._lost:
            self._screen.note("the connection is lost; waiting for the agent to come back")
        self._lost = True
        await asyncio.sleep(seconds)

    async def say(self, parts: list[Json]) -> None:
        """Sends a message, to the task that waits for one if any, and shows the answer. Raises: ClientError."""
        before, self._lost, self._talks, self._cancels = self.standing, False, True, False
        task = before.task if before.state in WAITING else None
        if task is None:
            self._view = TextView(self._screen)
        else:
            self._view.go_on()
        message = declaring(compose(parts, context=before.context, task=task), self._tools)
        self.asked = None
        self.standing = Standing(context=before.context, task=task)
        event: Json = None
        try:
            async with aclosing(self._client.said(message)) as events:
                async for event in events:
                    self._receive(event)
                    if self._cancels and self.standing.task is not None:
                        await self.cancel()
        except ClientError:
            if event is None:
                self.standing = before
            raise
        finally:
            self._talks = False
            self._screen.end_line()
        await self._finish(event)

    def _receive(self, event: Json) -> None:
        if self._lost:
            self._screen.note("connected again")
        self._lost = False
        self.standing.note(event)
        asked = question(event)
        self.asked = self.asked if asked is None else asked
        match self.output:
            case Output.text:
                self._view.receive(event)
            case Output.jsonl:
                self._screen.line(json_text(event))
            case Output.json:
                pass

    async def _finish(self, last: Json) -> None:
        standing = self.standing
        if self.output is Output.text:
            self._view.finish()
        elif self.output is Output.json:
            task = standing.task
            result = last if standing.replied or task is None else {"task": await self._client.get_task(task)}
            self._screen.line(json_text(result, indent=2))
        if standing.state in WAITING and not self.asked:
            self.tell_waiting()
        elif standing.state == "TASK_STATE_CANCELED":
            self._screen.note("(canceled)")

    def tell_waiting(self) -> None:
        word, asked = self.standing.word, self.asked
        if asked and asked.calls and not self._tools:
            tools = " ".join(shlex.join(["--tool", f"{name}=COMMAND"]) for name in _names(asked))
            self._screen.note(
                f"({word}: with {tools} this chat can run what is asked for; a message withdraws the call)"
            )
        elif asked:
            self._screen.note(f"({word}: /answer asks again; a message withdraws the call)")
        else:
            self._screen.note(f"({word}: the next line goes to the same task)")

    async def come_back(self) -> None:
        """Takes up the conversation where it stands. Raises: ClientError."""
        where = {"contextId": self.standing.context}
        try:
            async with aclosing(self._client.tasks(where, 1)) as tasks:
                last = text_at(await anext(tasks, None), "id")
            if last is None:
                self._screen.note("(nothing was said yet in the conversation of this id)")
            else:
                await self.look(last)
        except Refused as error:
            # Not every agent lists its tasks. What was said is continued all the same.
            if error.temporary or error.status in {401, 403}:
                raise

    async def look(self, name: str) -> None:
        """What this task waits for, if it does. Raises: ClientError."""
        task = await self._client.get_task(name)
        event = {"task": task}
        self.standing.note(event)
        self.asked = question(event)
        if self.standing.state not in WAITING:
            if self.standing.state not in ENDED:
                follow = self._there.command("tasks", "watch", argument=name)
                self._screen.tell(f"(at work on an earlier message; to follow it: {follow})")
            return
        self._view = TextView(self._screen)
        if self.output is Output.text:
            self._view.ask_again(task)
        else:
            self._screen.line(json_text(event, indent=2 if self.output is Output.json else None))
        if not self.asked:
            self.tell_waiting()

    async def cancel(self) -> None:
        """Cancels the task that runs or waits, as soon as the agent has named it. What goes wrong is told here."""
        standing = self.standing
        self._cancels = self._talks and standing.task is None
        if self._cancels:
            self._screen.note("(it is canceled as soon as the agent names its task)")
            return
        if standing.task is None or standing.state in ENDED:
            self._screen.note("(there is no task to cancel)")
            return
        waits = standing.state in WAITING
        try:
            found = await self._client.cancel_task(standing.task)
        except ClientError as error:
            self._screen.tell(stop(error).text)
            return
        if waits:
            standing.state = text_at(found, "status", "state")
            self._screen.note(f"({standing.word})")

    def begin_anew(self) -> None:
        self.standing, self.asked = Standing(), None
        self._screen.note("(a new conversation)")

    def farewell(self) -> Iterator[str]:
        """How to come back."""
        if self.standing.context is None:
            return
        there = self._there
        target = [] if there.agent is None else [there.agent]
        words = replace(there, agent=None).command("chat", *target, "--context", self.standing.context)
        yield f"next: {words}"

    def left_behind(self) -> list[str]:
        """How to find the task again that nobody watches any more."""
        standing = self.standing
        if standing.task is None or standing.state in ENDED | WAITING:
            return []
        return goes_on(self._there, standing.task)

    def ways_on(self, error: ClientError) -> list[str]:
        """How to go on behind a message that did not arrive, or whose answer did not."""
        return [*in_the_way(self._there, error), *self.left_behind()]


def _names(asked: Question) -> list[str]:
    """Of the tools that are to be run here."""
    return list(dict.fromkeys(str(call["name"]) for call in asked.calls))


# --- at the prompt ----------------------------------------------------------------------------------------------------


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
