"""`keys ...` of the command table. Law: as `commands`, it imports nothing but typer."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.console.parameters import Output
from gateway.cli.task_commands import Group, Listing

_FILE = Path("gateway.yaml")

File = Annotated[Path, typer.Option("-c", "--config", metavar="FILE", help="The configuration file.")]
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="Name of the key, for people.")]


def create_key(
    name: Name,
    principal: Annotated[
        str | None,
        typer.Option(metavar="NAME", show_default="the key's name", help="Whose key it is: what it sees and owns."),
    ] = None,
    tenant: Annotated[
        str, typer.Option(metavar="NAME", show_default=False, help="The tenant of the principal, if there are several.")
    ] = "",
    admin: Annotated[bool, typer.Option("--admin", help="The key opens the admin API, too.")] = False,
    expires: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Ends by itself after so long, as 90d; never if not given.")
    ] = None,
    file: File = _FILE,
    output: Listing = Output.text,
) -> int:
    """Make an API key and print it.

    It is printed this once: what is stored finds the key and cannot be turned back into it. A gateway that runs takes it
    at once. Several keys of one principal see the same conversations.
    """
    from gateway.cli.manage.keys import KeyOrder, create

    return create(KeyOrder(file, name, principal, tenant, admin, expires, output))


def list_keys(file: File = _FILE, output: Listing = Output.text) -> int:
    """List all keys that were ever made, the oldest first.

    The columns are name, how the key begins, principal, tenant, admin, made, expires, and whether it is in force.
    """
    from gateway.cli.manage.keys import print_keys

    return print_keys(file, output)


def revoke_key(name: Name, file: File = _FILE) -> int:
    """Revoke a key.

    A gateway that runs refuses it a second later. What it began goes on: turns, and streams that are open.
    """
    from gateway.cli.manage.keys import revoke

    return revoke(file, name)


KEYS = Group(
    "keys",
    "Make, list and revoke API keys.",
    (
        (
            "create",
            create_key,
            (
                "a2a-gateway keys create support-bot",
                "a2a-gateway keys create laptop --principal ada --expires 90d",
                "a2a-gateway keys create ops --admin -c /etc/a2a-gateway/gateway.yaml",
            ),
        ),
        ("list", list_keys, ("a2a-gateway keys list", "a2a-gateway keys list -o jsonl | jq .principal")),
        ("revoke", revoke_key, ("a2a-gateway keys revoke laptop",)),
    ),
)
