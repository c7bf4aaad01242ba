"""`keys`: the API keys in the database of a configuration, whether its gateway runs or not. Law: a key is printed once, when
it is made."""

import asyncio
import re
import shlex
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gateway.cli.console.exits import ExitCode, Stop
from gateway.cli.console.parameters import Output
from gateway.cli.console.terminal import local_time, print_rows, program, visible
from gateway.cli.manage.tasks import print_json
from gateway.cli.serve.sources import invalid, read_file
from gateway.config.gateway import GatewayConfig
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid
from gateway.config.settings import duration
from gateway.foundation.clock import Clock, timestamp
from gateway.ledger.api_keys import ApiKey, IssueKey, RevokeKey, digest_of, new_key, shown
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.port import Ledger

Json = Any

T = TypeVar("T")

_FIT = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,256}")


@dataclass(frozen=True, slots=True)
class KeyOrder:
    """What was typed behind `keys create`."""

    file: Path
    name: str
    principal: str | None
    tenant: str
    admin: bool
    expires: str | None
    output: Output


def create(order: KeyOrder) -> int:
    """Raises: Stop."""
    now = Clock().now()
    secret = new_key()
    principal = order.name if order.principal is None else order.principal
    for what, value in (("the name", order.name), ("--principal", principal), ("--tenant", order.tenant or "none")):
        if not _FIT.fullmatch(value):
            raise Stop(ExitCode.USAGE, f"{what} must be 1 to 256 characters without control characters")
    key = ApiKey(
        digest=digest_of(secret),
        name=order.name,
        prefix=shown(secret),
        principal=principal,
        tenant=order.tenant,
        admin=order.admin,
        created_at=now,
        expires_at=None if order.expires is None else now + _milliseconds(order.expires),
    )
    config = _config(order.file)
    try:
        _in_ledger(config, lambda ledger: ledger.commit(IssueKey(key)))
    except Conflict as error:
        again = f"revoke it first, or choose another name: {program()} keys revoke {_again(order.file, order.name)}"
        raise Stop(ExitCode.USAGE, f"there is a key {order.name!r} already; {again}") from error
    if order.output is Output.text:
        sys.stdout.write(f"{secret}\n")
        sys.stderr.write(visible(f"{_described(key)}; it is shown this once\n"))
    else:
        told = {"key": secret, **_told(key, now)}
        print_json([told], told, order.output)
    if config.auth.mode == "none":
        sys.stderr.write("auth.mode is none: nobody is asked for a key\n")
    return ExitCode.OK


def _milliseconds(expires: str) -> int:
    try:
        lasts = int(duration(expires) * 1000)
    except ValueError as error:
        raise Stop(ExitCode.USAGE, f"--expires {error}") from error
    if lasts <= 0:
        raise Stop(ExitCode.USAGE, "--expires must be longer than nothing")
    return lasts


def print_keys(file: Path, output: Output) -> int:
    """Raises: Stop."""
    keys = _in_ledger(_config(file), lambda ledger: ledger.api_keys())
    now = Clock().now()
    if output is not Output.text:
        told = [_told(key, now) for key in keys]
        print_json(told, {"keys": told}, output)
        return ExitCode.OK
    rows = [
        (
            key.name,
            key.prefix,
            key.principal,
            key.tenant or "-",
            "yes" if key.admin else "-",
            _moment(key.created_at),
            "-" if key.expires_at is None else _moment(key.expires_at),
            key.fault(now) or "in force",
        )
        for key in keys
    ]
    if rows:
        heads = ("NAME", "BEGINS", "PRINCIPAL", "TENANT", "ADMIN", "CREATED", "EXPIRES", "STATE")
        print_rows(sys.stdout, heads, rows)
    else:
        sys.stderr.write("there are no keys\n")
    return ExitCode.OK


def revoke(file: Path, name: str) -> int:
    """Raises: Stop."""
    try:
        _in_ledger(_config(file), lambda ledger: ledger.commit(RevokeKey(name, Clock().now())))
    except Conflict as error:
        there = f"{program()} keys list{_config_option(file)}"
        raise Stop(ExitCode.UNEXPECTED, f"no key {name!r} is in force\nThose that are there: {there}") from error
    sys.stdout.write(visible(f"key {name} is revoked\n"))
    return ExitCode.OK


def _config(file: Path) -> GatewayConfig:
    try:
        return read_file(file, {})
    except ConfigInvalid as error:
        raise invalid(error.problems) from error


def _in_ledger(config: GatewayConfig, what: Callable[[Ledger], Awaitable[T]]) -> T:
    """Raises: Stop, Conflict."""
    storage = config.storage

    async def ask() -> T:
        async with Registry().ledger(storage.url).open(storage.url, storage.auto_migrate) as ledger:
            return await what(ledger)

    try:
        return asyncio.run(ask())
    except LedgerUnavailable as error:
        raise Stop(ExitCode.UNREACHABLE, f"the database {storage.url} cannot be used: {error}") from error


def _described(key: ApiKey) -> str:
    tenant = f" of tenant {key.tenant}" if key.tenant else ""
    rights = ", admin" if key.admin else ""
    ends = f", until {_moment(key.expires_at)}" if key.expires_at is not None else ""
    return f"key {key.name}: principal {key.principal}{tenant}{rights}{ends}"


def _told(key: ApiKey, now: int) -> Json:
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


def _moment(milliseconds: int) -> str:
    return local_time(sys.stdout, timestamp(milliseconds))


def _config_option(file: Path) -> str:
    return "" if str(file) == "gateway.yaml" else f" -c {shlex.quote(str(file))}"


def _again(file: Path, name: str) -> str:
    return f"{shlex.quote(name)}{_config_option(file)}"
