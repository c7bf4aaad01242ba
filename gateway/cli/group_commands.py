"""The commands in groups, from `agents` to `storage`. Law: imports nothing but typer, as `commands`."""

from pathlib import Path
from typing import Annotated, get_args

import typer

from gateway.cli.console import parameters
from gateway.cli.console.groups import CommandGroup
from gateway.cli.console.output import Output

agents = CommandGroup("agents", "See the agents of a gateway.")
tasks = CommandGroup("tasks", "See, watch and cancel the tasks of an agent.")
contexts = CommandGroup("contexts", "See, move and delete conversations.")
push = CommandGroup("push", "See push notifications, and post them again.")
keys = CommandGroup("keys", "Make, list and revoke API keys.")
audit = CommandGroup("audit", "Check an audit log.")
storage = CommandGroup("storage", "Move a database.")
GROUPS = (agents, tasks, contexts, push, keys, audit, storage)

TaskId = Annotated[str, typer.Argument(metavar="ID", help="Id of the task.")]
ContextId = Annotated[str, typer.Argument(metavar="ID", help="Id of the context.")]
OfContext = Annotated[str | None, typer.Option("--context", metavar="ID", help="Only those of this conversation.")]
InState = Annotated[
    parameters.StateName | None,
    typer.Option("--state", metavar="STATE", help=f"Only those that are {', '.join(get_args(parameters.StateName))}."),
]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="The latest N; all of them if not given.")
]
From = Annotated[
    int | None, typer.Option("--from", metavar="N", min=1, help="Begin with event N; with the first if not given.")
]
Whole = Annotated[
    Output,
    typer.Option(
        "-o", "--output", metavar="text|json|jsonl", help="text; json: as the agent tells it; jsonl: on a line."
    ),
]


@agents.command("list", "a2a-gateway agents list", "a2a-gateway agents list -u https://agents.example.com -o json")
def list_agents(where: parameters.GatewayOptions, output: parameters.Listing = Output.text) -> None:
    """List the agents of a gateway.

    The columns are the name for -a, the name on the card, and what the agent does.
    """
    from gateway.cli.manage.agents import print_agents

    print_agents(where.address(), output)


@tasks.command("list", "a2a-gateway tasks list -a support", "a2a-gateway tasks list --state failed --limit 10 -o jsonl")
def list_tasks(
    *,
    context: OfContext = None,
    state: InState = None,
    limit: Limit = None,
    where: parameters.AgentOptions,
    output: parameters.Listing = Output.text,
) -> None:
    """List tasks, the latest first.

    The columns are task, state, time of the state, context, and what was said first. A terminal that is too narrow
    leaves out the context, then the time.
    """
    from gateway.cli.manage.tasks import print_tasks

    print_tasks(where.address(), context, state, limit, output)


@tasks.command("get", "a2a-gateway tasks get ID -a support", "a2a-gateway tasks get ID -o json | jq .artifacts")
def get_task(task: TaskId, where: parameters.AgentOptions, output: Whole = Output.text) -> None:
    """Show a task: its state, what was said, and its artifacts."""
    from gateway.cli.manage.tasks import print_task

    print_task(where.address(), task, output)


@tasks.command("cancel", "a2a-gateway tasks cancel ID -a support")
def cancel_task(task: TaskId, where: parameters.AgentOptions, output: Whole = Output.text) -> None:
    """Cancel a task that has not ended."""
    from gateway.cli.manage.tasks import cancel

    cancel(where.address(), task, output)


@tasks.command(
    "watch",
    "a2a-gateway tasks watch ID -a support",
    "a2a-gateway tasks watch ID --from 7 -o jsonl",
    "a2a-gateway tasks watch ID --approve ask --tool 'clock=date -u'",
)
def watch_task(
    *,
    task: TaskId,
    first: From = None,
    where: parameters.AgentOptions,
    output: parameters.Format = Output.text,
    approve: parameters.Approval = None,
    tools: parameters.Tools = None,
) -> int:
    """Watch a task until it ends or waits for somebody.

    It begins with what is past already. An agent that keeps no log of events shows the task as it stands and what
    follows. A tool call that needs a yes is asked about, and the task watched on. Exit codes: as for send.
    """
    from gateway.cli.manage.tasks import watch

    return watch(where.address(), task, first, output, approve, tools)


@contexts.command("list", "a2a-gateway contexts list -a support", "a2a-gateway contexts list --limit 10 -o json")
def list_contexts(
    *, limit: Limit = None, where: parameters.AgentOptions, output: parameters.Listing = Output.text
) -> None:
    """List conversations, the latest first.

    The columns are context, number of tasks, state of the last task, its time, and what was said first. A terminal that
    is too narrow leaves out the number, then the time.
    """
    from gateway.cli.manage.contexts import print_contexts

    print_contexts(where.address(), limit, output)


@contexts.command("show", "a2a-gateway contexts show ID -a support")
def show_context(context: ContextId, where: parameters.AgentOptions, output: Whole = Output.text) -> None:
    """Show a conversation: all that was said, the oldest first."""
    from gateway.cli.manage.contexts import print_context

    print_context(where.address(), context, output)


@contexts.command(
    "export", "a2a-gateway contexts export ID -f talk.json", "a2a-gateway contexts export ID | jq .threads"
)
def export_context(
    *,
    context: ContextId,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="Write it here, not to standard output.")
    ] = None,
    where: parameters.GatewayOptions,
) -> None:
    """Write a conversation as a JSON document.

    Another gateway of this kind takes it up with `contexts import`. It holds all that is stored, the ids of the backend's
    conversation among it: protect it as such.
    """
    from gateway.cli.manage.contexts import export

    export(where.address(), context, file)


@contexts.command(
    "import",
    "a2a-gateway contexts import talk.json -u http://127.0.0.1:9000",
    "a2a-gateway contexts export ID | a2a-gateway contexts import - -u http://127.0.0.1:9000",
)
def import_context(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The document; - reads standard input.")],
    where: parameters.GatewayOptions,
) -> None:
    """Take up a conversation that was exported.

    The next message goes on with it. All of it is stored or nothing: an id that exists here is refused, and so is an
    agent that is not here, or whose history is kept in another place.
    """
    from gateway.cli.manage.contexts import import_document

    import_document(where.address(), file)


@contexts.command(
    "adopt", "a2a-gateway contexts adopt support resp_68ca", "a2a-gateway contexts adopt support resp_68ca --context ID"
)
def adopt_handle(
    *,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Name of the agent.")],
    handle: Annotated[
        str,
        typer.Argument(
            metavar="HANDLE",
            help="The id that its backend continues from: resp_..., or conv_... with `conversation: true`.",
        ),
    ],
    context: Annotated[
        str | None, typer.Option("--context", metavar="ID", help="Id of the new conversation; made if not given.")
    ] = None,
    where: parameters.GatewayOptions,
) -> None:
    """Go on with a conversation of the backend's own.

    It makes a conversation here whose first message continues the one that the agent's backend has, and prints its id, for
    --context. Whether the backend knows the handle shows with the first message.
    """
    from gateway.cli.manage.contexts import adopt

    adopt(where.address(agent), handle, context)


@contexts.command("delete", "a2a-gateway contexts delete ID")
def delete_context(*, context: ContextId, agent: parameters.Agent = None, where: parameters.GatewayOptions) -> None:
    """Delete a conversation and all that was said in it.

    What runs there is canceled first, and nothing comes back. It needs this gateway: there is no such operation in A2A.
    It deletes what was said to every agent of the gateway under this id; with -a only if that agent was among them.
    """
    from gateway.cli.manage.contexts import delete

    delete(where.address(agent), context)


@push.command("list", "a2a-gateway push list", "a2a-gateway push list --stopped -o jsonl")
def list_pushes(
    *,
    stopped: Annotated[bool, typer.Option("--stopped", help="Only those that were given up.")] = False,
    where: parameters.GatewayOptions,
    output: parameters.Listing = Output.text,
) -> None:
    """List what is still to be posted, the latest first.

    The columns are task, configuration, state, the next event's number, its failed attempts, the next attempt, address, and
    why the last attempt failed. It needs this gateway: there is no such operation in A2A.
    """
    from gateway.cli.manage.push import print_pushes

    print_pushes(where.address(), stopped, output)


@push.command("replay", "a2a-gateway push replay TASK", "a2a-gateway push replay TASK CONFIG")
def replay_pushes(
    *,
    task: TaskId,
    config: Annotated[
        str | None, typer.Argument(metavar="CONFIG", help="Id of the configuration; all of the task if not given.")
    ] = None,
    where: parameters.GatewayOptions,
) -> None:
    """Post again what was given up.

    Each configuration goes on with the event at which it was stopped, and in order.
    """
    from gateway.cli.manage.push import replay

    replay(where.address(), task, config)


@keys.command(
    "create",
    "a2a-gateway keys create support-bot",
    "a2a-gateway keys create laptop --principal ada --expires 90d",
    "a2a-gateway keys create ops --admin -c /etc/a2a-gateway/gateway.yaml",
)
def create_key(options: parameters.NewKeyOptions) -> None:
    """Make an API key and print it.

    It is printed this once: what is stored finds the key and cannot be turned back into it. A gateway that runs takes it
    at once. Several keys of one principal see the same conversations.
    """
    from gateway.cli.manage.keys import create

    create(options)


@keys.command("list", "a2a-gateway keys list", "a2a-gateway keys list -o jsonl | jq .principal")
def list_keys(file: parameters.ConfigFile = parameters.DEFAULT_FILE, output: parameters.Listing = Output.text) -> None:
    """List all keys that were ever made, the oldest first.

    The columns are name, how the key begins, principal, tenant, admin, made, expires, and whether it is in force.
    """
    from gateway.cli.manage.keys import print_keys

    print_keys(file, output)


@keys.command("revoke", "a2a-gateway keys revoke laptop")
def revoke_key(name: parameters.KeyName, file: parameters.ConfigFile = parameters.DEFAULT_FILE) -> None:
    """Revoke a key.

    A gateway that runs refuses it a second later, and ends the streams that are open with it by an error. The turns that it
    began go on.
    """
    from gateway.cli.manage.keys import revoke

    revoke(file, name)


@storage.command(
    "copy",
    "a2a-gateway storage copy gateway.yaml postgresql://gateway@db.example.com/gateway",
    "a2a-gateway storage copy sqlite:///data/gateway.db new/gateway.yaml",
    "a2a-gateway storage copy old.yaml new.yaml --json | jq .rows",
)
def copy_storage(
    source: Annotated[str, typer.Argument(metavar="FROM", help="URL of a database, or a configuration file.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="As FROM; an empty database, or one to be made.")],
    output: parameters.Listing = Output.text,
) -> None:
    """Copy a database into another one.

    It copies everything, also to a database of another kind. Stop the gateways first: it refuses while a process works on
    either of them. FROM is only read. TO must be empty, and no gateway opens it before all of it is copied and found equal.
    A copy that was interrupted goes on with the same command.
    """
    from gateway.cli.manage.storage import copy_storage as copy_all

    copy_all(source, target, output)


@audit.command(
    "verify",
    "a2a-gateway audit verify audit.jsonl",
    "a2a-gateway audit verify audit.jsonl.1 audit.jsonl --key-variable AUDIT_KEY",
)
def verify_audit(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="The files of one log, the oldest first.")],
    key_variable: Annotated[
        str | None,
        typer.Option(
            "--key-variable", metavar="NAME", help="Variable of the environment that has the key (audit.key)."
        ),
    ] = None,
    output: parameters.Listing = Output.text,
) -> None:
    """Check that nobody has changed an audit log.

    A line that is not as it was written is named, and the exit code is 1. Whether the end of a log was cut off does
    not show: compare the heads (-o json) with those that were kept elsewhere.
    """
    from gateway.cli.manage.audit import print_verification

    print_verification(files, key_variable, output)
