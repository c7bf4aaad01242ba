"""`chat`, `tasks ...` and `contexts ...` of the command table. Law: as `commands`, it imports nothing but typer."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.console.parameters import (
    DEFAULT_URL,
    Agent,
    AgentOrUrl,
    ApiKey,
    Approval,
    Binding,
    Context,
    Format,
    Headers,
    Output,
    StateChoice,
    Tools,
    Url,
    examples,
)

TaskId = Annotated[str, typer.Argument(metavar="ID", show_default=False, help="Id of the task.")]
ContextId = Annotated[str, typer.Argument(metavar="ID", show_default=False, help="Id of the context.")]
OfContext = Annotated[str | None, typer.Option("--context", metavar="ID", help="Only those of this conversation.")]
InState = Annotated[
    StateChoice | None,
    typer.Option("--state", metavar="STATE", help=f"Only those that are {', '.join(StateChoice)}."),
]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="The latest N; all of them if not given.")
]
From = Annotated[
    int | None, typer.Option("--from", metavar="N", min=1, help="Begin with event N; with the first if not given.")
]
Listing = Annotated[
    Output,
    typer.Option(
        "-o", "--output", metavar="text|json|jsonl", help="text: columns; json: all in one; jsonl: a line each."
    ),
]
Whole = Annotated[
    Output,
    typer.Option(
        "-o", "--output", metavar="text|json|jsonl", help="text; json: as the agent tells it; jsonl: on a line."
    ),
]


def chat(
    agent: AgentOrUrl = None,
    url: Url = DEFAULT_URL,
    binding: Binding = None,
    context: Context = None,
    headers: Headers = None,
    key: ApiKey = None,
    output: Format = Output.text,
    tools: Tools = None,
) -> int:
    """Talk with an agent: a line is a message.

    \b
    Lines that begin with / are for the chat itself:
      /file PATH   send this file along with the next message
      /new         begin a new conversation
      /answer      be asked again what the task waits for
      /cancel      cancel the task that runs or waits
      /raw         show each event as JSON, or as text again
      /help        list them
      /quit        end; as does Ctrl-D

    A tool call that needs a yes is asked about: y allows it, anything else does not. A line that begins with /, or Ctrl-D,
    leaves the question open: /answer, and chat --context ID another day, ask it again. A message instead withdraws the call.

    Ctrl-C cancels the task while an answer comes, and ends the chat otherwise. A connection that drops is taken up again
    where it stopped, also when the gateway starts anew.
    """
    from gateway.cli.console.connect import reach
    from gateway.cli.talk.approvals import read_tools
    from gateway.cli.talk.chat import talk_on

    return talk_on(reach(agent, url, binding, headers, key), context, output, read_tools(tools or ()))


def list_tasks(
    context: OfContext = None,
    state: InState = None,
    limit: Limit = None,
    url: Url = DEFAULT_URL,
    agent: Agent = None,
    binding: Binding = None,
    headers: Headers = None,
    key: ApiKey = None,
    output: Listing = Output.text,
) -> int:
    """List tasks, the latest first.

    The columns are task, state, time of the state, context, and what was said first.
    """
    from gateway.cli.console.connect import reach
    from gateway.cli.manage.tasks import Filters, print_tasks

    return print_tasks(reach(agent, url, binding, headers, key), Filters(context, state, limit), output)


def get_task(
    task: TaskId,
    url: Url = DEFAULT_URL,
    agent: Agent = None,
    binding: Binding = None,
    headers: Headers = None,
    key: ApiKey = None,
    output: Whole = Output.text,
) -> int:
    """Show a task: its state, what was said, and its artifacts."""
    from gateway.cli.console.connect import reach
    from gateway.cli.manage.tasks import print_task

    return print_task(reach(agent, url, binding, headers, key), task, output)


def cancel_task(
    task: TaskId,
    url: Url = DEFAULT_URL,
    agent: Agent = None,
    binding: Binding = None,
    headers: Headers = None,
    key: ApiKey = None,
    output: Whole = Output.text,
) -> int:
    """Cancel a task that has not ended."""
    from gateway.cli.console.connect import reach
    from gateway.cli.manage.tasks import cancel

    return cancel(reach(agent, url, binding, headers, key), task, output)


def watch_task(
    task: TaskId,
    first: From = None,
    url: Url = DEFAULT_URL,
    agent: Agent = None,
    binding: Binding = None,
    headers: Headers = None,
    key: ApiKey = None,
    output: Format = Output.text,
    approve: Approval = None,
    tools: Tools = None,
) -> int:
    """Watch a task until it ends or waits for somebody.

    It begins with what is past already. An agent that keeps no log of events shows the task as it stands and what
    follows. A tool call that needs a yes is asked about, and the task watched on. Exit codes: as for send.
    """
    from gateway.cli.console.connect import reach
    from gateway.cli.manage.tasks import watch
    from gateway.cli.talk.approvals import read_tools

    there = reach(agent, url, binding, headers, key)
    return watch(there, task, first, output, approve, read_tools(tools or ()))


def list_contexts(
    limit: Limit = None,
    url: Url = DEFAULT_URL,
    agent: Agent = None,
    binding: Binding = None,
    headers: Headers = None,
    key: ApiKey = None,
    output: Listing = Output.text,
) -> int:
    """List conversations, the latest first.

    The columns are context, number of tasks, state of the last task, its time, and what was said first.
    """
    from gateway.cli.console.connect import reach
    from gateway.cli.manage.contexts import print_contexts

    return print_contexts(reach(agent, url, binding, headers, key), limit, output)


def show_context(
    context: ContextId,
    url: Url = DEFAULT_URL,
    agent: Agent = None,
    binding: Binding = None,
    headers: Headers = None,
    key: ApiKey = None,
    output: Whole = Output.text,
) -> int:
    """Show a conversation: all that was said, the oldest first."""
    from gateway.cli.console.connect import reach
    from gateway.cli.manage.contexts import print_context

    return print_context(reach(agent, url, binding, headers, key), context, output)


def delete_context(
    context: ContextId, url: Url = DEFAULT_URL, agent: Agent = None, headers: Headers = None, key: ApiKey = None
) -> int:
    """Delete a conversation and all that was said in it.

    What runs there is canceled first, and nothing comes back. It needs this gateway: there is no such operation in A2A.
    It deletes what was said to every agent of the gateway under this id; with -a only if that agent was among them.
    """
    from gateway.cli.console.connect import reach
    from gateway.cli.manage.contexts import delete

    return delete(reach(agent, url, None, headers, key), context)


def export_context(
    context: ContextId,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="Write it here, not to standard output.")
    ] = None,
    url: Url = DEFAULT_URL,
    headers: Headers = None,
    key: ApiKey = None,
) -> int:
    """Write a conversation as a JSON document.

    Another gateway of this kind takes it up with `contexts import`. It holds all that is stored, the ids of the backend's
    conversation among it: protect it as such.
    """
    from gateway.cli.console.connect import reach
    from gateway.cli.manage.contexts import export

    return export(reach(None, url, None, headers, key), context, file)


def import_context(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", show_default=False, help="The document; - reads standard input.")
    ],
    url: Url = DEFAULT_URL,
    headers: Headers = None,
    key: ApiKey = None,
) -> int:
    """Take up a conversation that was exported.

    The next message goes on with it. All of it is stored or nothing: an id that exists here is refused, and so is an
    agent that is not here, or whose history is kept in another place.
    """
    from gateway.cli.console.connect import reach
    from gateway.cli.manage.contexts import bring

    return bring(reach(None, url, None, headers, key), file)


def adopt_handle(
    agent: Annotated[str, typer.Argument(metavar="AGENT", show_default=False, help="Name of the agent.")],
    handle: Annotated[
        str,
        typer.Argument(
            metavar="HANDLE",
            show_default=False,
            help="The id that its backend continues from: resp_..., or conv_... with `conversation: true`.",
        ),
    ],
    context: Annotated[
        str | None, typer.Option("--context", metavar="ID", help="Id of the new conversation; made if not given.")
    ] = None,
    url: Url = DEFAULT_URL,
    headers: Headers = None,
    key: ApiKey = None,
) -> int:
    """Go on with a conversation of the backend's own.

    It makes a conversation here whose first message continues the one that the agent's backend has, and prints its id, for
    --context. Whether the backend knows the handle shows with the first message.
    """
    from gateway.cli.console.connect import reach
    from gateway.cli.manage.contexts import adopt

    return adopt(reach(agent, url, None, headers, key), handle, context)


def list_pushes(
    stopped: Annotated[bool, typer.Option("--stopped", help="Only those that were given up.")] = False,
    url: Url = DEFAULT_URL,
    headers: Headers = None,
    key: ApiKey = None,
    output: Listing = Output.text,
) -> int:
    """List what is still to be posted, the latest first.

    The columns are task, configuration, state, the next event's number, its failed attempts, the next attempt, address, and
    why the last attempt failed. It needs this gateway: there is no such operation in A2A.
    """
    from gateway.cli.console.connect import reach
    from gateway.cli.manage.contexts import print_pushes

    return print_pushes(reach(None, url, None, headers, key), stopped, output)


def replay_pushes(
    task: TaskId,
    config: Annotated[
        str | None,
        typer.Argument(
            metavar="CONFIG", show_default=False, help="Id of the configuration; all of the task if not given."
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    headers: Headers = None,
    key: ApiKey = None,
) -> int:
    """Post again what was given up.

    Each configuration goes on with the event at which it was stopped, and in order.
    """
    from gateway.cli.console.connect import reach
    from gateway.cli.manage.contexts import replay

    return replay(reach(None, url, None, headers, key), task, config)


@dataclass(frozen=True, slots=True)
class Group:
    """Commands below a word. `commands`: name, function, examples."""

    name: str
    text: str
    commands: tuple[tuple[str, Callable[..., int], tuple[str, ...]], ...]

    def add_to(self, app: typer.Typer) -> None:
        group = typer.Typer(rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})
        for name, command, lines in self.commands:
            group.command(name, epilog=examples(*lines))(command)
        shown = [lines[0] for _, _, lines in self.commands]
        app.add_typer(group, name=self.name, help=self.text, epilog=examples(*shown))


GROUPS = (
    Group(
        "tasks",
        "See, watch and cancel the tasks of an agent.",
        (
            (
                "list",
                list_tasks,
                ("a2a-gateway tasks list -a support", "a2a-gateway tasks list --state failed --limit 10 -o jsonl"),
            ),
            (
                "get",
                get_task,
                ("a2a-gateway tasks get ID -a support", "a2a-gateway tasks get ID -o json | jq .artifacts"),
            ),
            ("cancel", cancel_task, ("a2a-gateway tasks cancel ID -a support",)),
            (
                "watch",
                watch_task,
                (
                    "a2a-gateway tasks watch ID -a support",
                    "a2a-gateway tasks watch ID --from 7 -o jsonl",
                    "a2a-gateway tasks watch ID --approve ask --tool 'clock=date -u'",
                ),
            ),
        ),
    ),
    Group(
        "contexts",
        "See, move and delete conversations.",
        (
            (
                "list",
                list_contexts,
                ("a2a-gateway contexts list -a support", "a2a-gateway contexts list --limit 10 -o json"),
            ),
            ("show", show_context, ("a2a-gateway contexts show ID -a support",)),
            (
                "export",
                export_context,
                ("a2a-gateway contexts export ID -f talk.json", "a2a-gateway contexts export ID | jq .threads"),
            ),
            (
                "import",
                import_context,
                (
                    "a2a-gateway contexts import talk.json -u http://127.0.0.1:9000",
                    "a2a-gateway contexts export ID | a2a-gateway contexts import - -u http://127.0.0.1:9000",
                ),
            ),
            (
                "adopt",
                adopt_handle,
                (
                    "a2a-gateway contexts adopt support resp_68ca",
                    "a2a-gateway contexts adopt support resp_68ca --context ID",
                ),
            ),
            ("delete", delete_context, ("a2a-gateway contexts delete ID",)),
        ),
    ),
    Group(
        "push",
        "See push notifications, and post them again.",
        (
            ("list", list_pushes, ("a2a-gateway push list", "a2a-gateway push list --stopped -o jsonl")),
            ("replay", replay_pushes, ("a2a-gateway push replay TASK", "a2a-gateway push replay TASK CONFIG")),
        ),
    ),
)
