"""The commands: names, options, help.

Law: imports nothing but typer; a command imports what it needs when it runs, so that help is quick and needs no database,
server or client. Only the help of `serve` asks for the targets of the adapters, which
needs no adapter.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Annotated, Literal, cast

import typer

from gateway.cli.console import parameters
from gateway.cli.console.groups import CommandGroup, examples
from gateway.cli.console.output import PROGRAM, Output
from gateway.cli.group_commands import GROUPS

commands = CommandGroup(PROGRAM, "Exposes agents to A2A clients, whatever service runs behind them.")
app = commands.app


@contextmanager
def hidden(package: str) -> Generator[None]:
    """While the block runs, the package counts as not installed, unless it is loaded already.

    structlog imports rich, which typer brings along, whenever it is installed, and has no setting against that. Rich paints
    tracebacks on a terminal; the gateway indents them. It would add 0.1 s and 4 MB to every start.
    """
    if package in sys.modules:
        yield
        return
    modules = cast("dict[str, ModuleType | None]", sys.modules)
    modules[package] = None
    try:
        yield
    finally:
        del modules[package]


def _show_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback(
    epilog=examples("a2a-gateway demo", "a2a-gateway serve ollama:llama3.3", "a2a-gateway serve -c gateway.yaml")
)
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    show: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The options of all commands."""


def _targets() -> list[str]:
    with hidden("rich"):
        from gateway.cli.serve.targets import target_lines
        from gateway.config.plugins import Registry

    return target_lines(Registry().shorthands())


@commands.command(
    "serve",
    "OPENAI_API_KEY=sk-... a2a-gateway serve openai:gpt-5.5",
    "a2a-gateway serve ollama:llama3.3 mine=python:./my_agent.py:reply",
    "a2a-gateway serve chat:http://localhost:8000/v1#llama3.3 --save gateway.yaml",
    "a2a-gateway serve -c gateway.yaml --port 9000",
    told=_targets,
)
def serve(options: parameters.ServeOptions) -> None:
    """Run the gateway on a configuration file, or on targets.

    \b
    A target is one agent:
      ...

    Everything else is in the configuration file. SIGHUP reads it again; SIGTERM and Ctrl-C let running turns end.
    """
    with hidden("rich"):
        from gateway.cli.serve.serve import serve_agents

    serve_agents(options)


@commands.command("demo", "a2a-gateway demo", "a2a-gateway demo --port 9000")
def demo(
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", min=0, max=65535, show_default="8080, or the next free one", help="Where to listen."
        ),
    ] = None,
) -> None:
    """Run the gateway in front of scripted backends.

    It needs no key and no service, and keeps nothing.
    """
    with hidden("rich"):
        from gateway.cli.demo.demo import run_demo

    run_demo(port)


@commands.command("init", "a2a-gateway init", "a2a-gateway init my-gateway")
def init(folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write them.")] = Path()) -> None:
    """Write a gateway.yaml to start from, and an agent in Python.

    Nothing that is there already is written over.
    """
    from gateway.cli.serve.starter import write_starter

    write_starter(folder)


@commands.command(
    "check",
    "a2a-gateway check -c gateway.yaml",
    "a2a-gateway check --live",
    "a2a-gateway check --print > everything.yaml",
)
def check(
    file: parameters.ConfigFile = parameters.DEFAULT_FILE,
    live: Annotated[
        bool, typer.Option("--live", help="Ask every backend, too: each model gets one word to answer to.")
    ] = False,
    show: Annotated[bool, typer.Option("--print", help="Print everything that is in force, secrets masked.")] = False,
) -> None:
    """Tell everything that is wrong with a configuration file.

    Exit codes: 0 all is well, 78 the file is wrong; with --live also 69 a backend is unreachable, 75 try again,
    77 not authorised.
    """
    with hidden("rich"):
        from gateway.cli.serve.check import check_file

    check_file(file, live=live, show=show)


@commands.command("backends", "a2a-gateway backends", "a2a-gateway backends --json | jq '.backends[].type'")
def backends(output: parameters.Listing = Output.text) -> None:
    """List the types of agents that are installed.

    \b
    For each type, a line for every way in which it keeps conversations, and what it can do then:
      backend, rotating    the service keeps them, under an id that changes with every answer
      backend, static      the service keeps them, under one id
      gateway              the gateway keeps them, and sends them whole

    A setting that chooses the way stands in brackets. No service is asked. What cannot be used is listed with the reason.
    """
    with hidden("rich"):
        from gateway.cli.serve.backends import print_backends

    print_backends(output)


@commands.command("schema", "a2a-gateway schema > gateway.schema.json")
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors."""
    from gateway.cli.serve.check import print_schema

    print_schema()


@commands.command("card", "a2a-gateway card support", "a2a-gateway card https://agents.example.com -o json")
def card(
    *,
    agent: parameters.AgentOrUrl = None,
    where: parameters.GatewayOptions,
    output: Annotated[
        Literal["text", "json"], typer.Option("-o", "--output", metavar="text|json", help="How to print it.")
    ] = "text",
) -> None:
    """Print the card of an agent."""
    from gateway.cli.manage.card import print_card

    print_card(where.address(agent), as_json=output == "json")


@commands.command(
    "send",
    "a2a-gateway send 'What is the weather?'",
    "a2a-gateway send -a notes --context ID 'And tomorrow?'",
    "a2a-gateway send -u https://agents.example.com --file report.pdf 'Summarise this'",
    "git diff | a2a-gateway send -a reviewer -",
)
def send(options: parameters.SendOptions) -> int:
    """Send a message and print the complete answer.

    Exit codes: 0 completed, 10 failed, 11 canceled, 12 rejected, 13 input required, 14 authorisation required,
    15 not in time, 69 unreachable, 75 try again, 77 not authorised.
    """
    from gateway.cli.talk.send import run_send

    return run_send("send", options)


@commands.command(
    "stream",
    "a2a-gateway stream 'What is the weather?'",
    "a2a-gateway stream -a notes --context ID 'And tomorrow?'",
    "a2a-gateway stream -o jsonl 'Hello' | jq .artifactUpdate",
    "a2a-gateway stream --tool 'clock=date -u' --approve ask 'What time is it?'",
)
def stream(options: parameters.SendOptions, approve: parameters.Approval = None, tools: parameters.Tools = None) -> int:
    """Send a message and watch the answer come.

    The answer goes to standard output, tool calls and progress to standard error. A connection that drops is taken up
    again where it stopped; Ctrl-C leaves the task running. A tool call that needs a yes is asked about. Exit codes: as for
    send.
    """
    from gateway.cli.talk.send import run_send

    return run_send("stream", options, approve, tools)


@commands.command(
    "chat",
    "a2a-gateway chat support",
    "a2a-gateway chat https://agents.example.com",
    "a2a-gateway chat support --context ID",
)
def chat(
    *,
    agent: parameters.AgentOrUrl = None,
    where: parameters.GatewayOptions,
    binding: parameters.Binding = None,
    context: parameters.Context = None,
    output: parameters.Format = Output.text,
    tools: parameters.Tools = None,
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
    from gateway.cli.talk.chat import run_chat

    return run_chat(where.address(agent, binding), context, output, tools)


@commands.command(
    "health",
    "a2a-gateway health",
    "a2a-gateway health -c /etc/a2a-gateway/gateway.yaml",
    "a2a-gateway health --live -u http://127.0.0.1:9000",
)
def health(
    url: Annotated[
        str | None,
        typer.Option(
            "-u",
            "--url",
            metavar="URL",
            envvar="A2A_GATEWAY_URL",
            show_default="where its configuration says; http://127.0.0.1:8080 without one",
            help="Address of the gateway.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "-c",
            "--config",
            metavar="FILE",
            show_default="gateway.yaml, if there is one",
            help="The configuration file that says where it listens.",
        ),
    ] = None,
    live: Annotated[bool, typer.Option("--live/--ready", help="Does the process answer, or can it take work?")] = False,
) -> None:
    """Ask a gateway how it is: exit 0 if it is well, 69 if not.

    Exit code 78: its configuration file does not say where it listens.
    """
    from gateway.cli.manage.health import print_health

    print_health(url, file, live=live)


@commands.command("backup", "a2a-gateway backup backup/gateway-monday.db", "a2a-gateway backup -c gateway.yaml FILE")
def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it; must not be there yet.")],
    file: parameters.ConfigFile = parameters.DEFAULT_FILE,
) -> None:
    """Copy the database to a file, also while the gateway runs.

    The copy is one moment of the database, checked, and readable by its owner only: it holds conversations. The folder is
    made if it is missing.
    """
    from gateway.cli.manage.backup import back_up

    back_up(file, target)


@commands.command("restore", "a2a-gateway restore backup/gateway-monday.db", "a2a-gateway restore FILE --replace")
def restore(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `backup` has written.")],
    file: parameters.ConfigFile = parameters.DEFAULT_FILE,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a database that is there; it is kept under another name.")
    ] = False,
) -> None:
    """Put a backup in the place of the database. Stop the gateway first.

    The backup is checked before anything changes.
    """
    from gateway.cli.manage.backup import restore as put_back

    put_back(file, source, replace=replace)


@commands.command("version", "a2a-gateway version")
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    typer.echo(f"{PROGRAM} {installed(PROGRAM)}")


for _group in GROUPS:
    commands.add(_group)
