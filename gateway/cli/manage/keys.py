"""`keys`: the API keys in the database of a configuration, whether its gateway runs or not.

Law: a key is printed once, when it is made.
"""

import asyncio
import getpass
import re
import shlex
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from gateway.cli.console.output import (
    Columns,
    ExitCode,
    Output,
    Stop,
    config_option,
    local_time,
    print_json,
    print_listing,
    program,
    visible,
)
from gateway.cli.console.parameters import NewKeyOptions
from gateway.cli.serve.sources import load_file
from gateway.config.gateway import GatewayConfig
from gateway.config.plugins import Registry
from gateway.config.settings import duration
from gateway.foundation.clock import Clock, timestamp
from gateway.ledger.api_keys import ApiKey, IssueKey, RevokeKey, digest_of, new_key, shown
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.port import Ledger
from gateway.ports.observer import Actor, AuditEntry, Target

Json = Any

T = TypeVar("T")

_COLUMNS: Columns = {
    "NAME": lambda key: key["name"],
    "BEGINS": lambda key: key["prefix"],
    "PRINCIPAL": lambda key: key["principal"],
    "TENANT": lambda key: key["tenant"] or "-",
    "ADMIN": lambda key: "yes" if key["admin"] else "-",
    "CREATED": lambda key: local_time(sys.stdout, key["createdAt"]),
    "EXPIRES": lambda key: "-" if key["expiresAt"] is None else local_time(sys.stdout, key["expiresAt"]),
    "STATE": lambda key: key["state"],
}
_VALID = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,256}")


def create(options: NewKeyOptions) -> None:
    """Raises: Stop."""
    secret = new_key()
    principal = options.name if options.principal is None else options.principal
    for what, value in (("the name", options.name), ("--principal", principal), ("--tenant", options.tenant or "none")):
        if not _VALID.fullmatch(value):
            raise Stop(ExitCode.USAGE, f"{what} must be 1 to 256 characters without control characters")
    lasts = None if options.expires is None else _milliseconds(options.expires)
    config = load_file(options.file)
    refused = partial(_audit, config, "key.created", Target(key=options.name, principal=principal))

    async def issue(ledger: Ledger) -> ApiKey:
        now = ledger.now()
        key = ApiKey(
            digest=digest_of(secret),
            name=options.name,
            prefix=shown(secret),
            principal=principal,
            tenant=options.tenant,
            admin=options.admin,
            created_at=now,
            expires_at=None if lasts is None else now + lasts,
        )
        await ledger.commit(IssueKey(key))
        made = Target(key=key.name, principal=key.principal, tenant=key.tenant, admin=key.admin)
        _audit(config, "key.created", made)
        return key

    try:
        key = _in_ledger(config, issue, refused, make=True)
    except Conflict as error:
        refused("conflict")
        revoke = f"{program()} keys revoke {shlex.quote(options.name)}{config_option(options.file)}"
        remedy = f"revoke it first, or choose another name: {revoke}"
        raise Stop(ExitCode.USAGE, f"there is a key {options.name!r} already; {remedy}") from error
    if options.output is Output.text:
        sys.stdout.write(f"{secret}\n")
        sys.stderr.write(visible(f"{_summary(key)}; it is shown this once\n"))
    else:
        document = {"key": secret, **_document(key, key.created_at)}
        print_json([document], document, options.output)
    if config.auth.mode == "none":
        sys.stderr.write("auth.mode is none: nobody is asked for a key\n")


def _milliseconds(expires: str) -> int:
    try:
        lasts = int(duration(expires) * 1000)
    except ValueError as error:
        raise Stop(ExitCode.USAGE, f"--expires {error}") from error
    if lasts <= 0:
        raise Stop(ExitCode.USAGE, "--expires must be longer than nothing")
    return lasts


def print_keys(file: Path, output: Output) -> None:
    """Raises: Stop."""

    async def listed(ledger: Ledger) -> list[Json]:
        return [_document(key, ledger.now()) for key in await ledger.api_keys()]

    documents = _in_ledger(load_file(file), listed)
    print_listing(output, "keys", documents, _COLUMNS, "there are no keys")


def revoke(file: Path, name: str) -> None:
    """Raises: Stop."""
    config = load_file(file)
    audit = partial(_audit, config, "key.revoked", Target(key=name))

    async def revoked(ledger: Ledger) -> None:
        await ledger.commit(RevokeKey(name, ledger.now()))
        audit()

    try:
        _in_ledger(config, revoked, audit)
    except Conflict as error:
        audit("not_found")
        listing = f"{program()} keys list{config_option(file)}"
        raise Stop(ExitCode.UNEXPECTED, f"no key {name!r} is in force\nThose that are there: {listing}") from error
    sys.stdout.write(visible(f"key {name} is revoked\n"))


def _audit(config: GatewayConfig, action: str, target: Target, outcome: str = "done") -> None:
    """The line of the audit log, where there is one, by the user of the operating system. Raises: Stop."""
    if not config.audit.wanted:
        return
    from gateway.telemetry.audit import audit_log

    try:
        with audit_log(config.audit.path, config.audit.key, Clock()) as audit:
            audit.audited(AuditEntry(action, Actor(f"{program()} by {getpass.getuser()}"), target, outcome))
    except OSError as error:
        what = "done" if outcome == "done" else "refused"
        problem = f"it is {what}, and has no line in the audit log: {config.audit.path}: {error.strerror}"
        raise Stop(ExitCode.UNEXPECTED, problem) from error


def _in_ledger(
    config: GatewayConfig,
    operation: Callable[[Ledger], Awaitable[T]],
    refused: Callable[[str], None] = lambda _: None,
    *,
    make: bool = False,
) -> T:
    """`refused` gets the outcome where the storage does not take it. `make` allows to make the database. Raises: Stop,
    Conflict."""
    storage = config.storage
    factory = Registry().ledger(storage.url)
    if not factory.keeps:
        problem = f"the storage {storage.address} keeps nothing, and a gateway that runs has one of its own: there are no keys"
        raise Stop(ExitCode.USAGE, problem)

    async def run() -> T:
        async with factory.open(storage.settings, storage.auto_migrate) as ledger:
            return await operation(ledger)

    try:
        missing = None if make or factory.absence is None else factory.absence(storage.settings)
        if missing is None:
            return asyncio.run(run())
    except LedgerUnavailable as error:
        refused("busy")
        raise Stop(ExitCode.UNREACHABLE, f"the database {storage.address} cannot be used: {error}") from error
    refused("not_found")
    raise Stop(ExitCode.UNREACHABLE, f"{missing}: it is made by the first start of the gateway, or by keys create")


def _summary(key: ApiKey) -> str:
    tenant = f" of tenant {key.tenant}" if key.tenant else ""
    rights = ", admin" if key.admin else ""
    ends = f", until {local_time(sys.stdout, timestamp(key.expires_at))}" if key.expires_at is not None else ""
    return f"key {key.name}: principal {key.principal}{tenant}{rights}{ends}"


def _document(key: ApiKey, now: int) -> Json:
    return {
        "name": key.name,
        "prefix": key.prefix,
        "principal": key.principal,
        "tenant": key.tenant,
        "admin": key.admin,
        "createdAt": timestamp(key.created_at),
        "expiresAt": None if key.expires_at is None else timestamp(key.expires_at),
        "revokedAt": None if key.revoked_at is None else timestamp(key.revoked_at),
        "state": key.fault(now) or "in force",
    }
