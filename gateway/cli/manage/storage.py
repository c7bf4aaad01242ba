"""`storage copy`: everything that a ledger holds, into another one. Law: the plug-ins give the rows; a copy that was cut goes
on with the same command; an error names the ledger and what to do."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from pydantic import BaseModel, SecretStr, ValidationError

from gateway.cli.console.output import ExitCode, Output, Screen, Stop, print_json, visible
from gateway.cli.serve.sources import load_file
from gateway.config.plugins import Registry
from gateway.config.problems import shown_url
from gateway.config.storage import DEFAULT_URL, StorageConfig
from gateway.ledger.copying import Copied, CopyFailed, Report, copy
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.port import AnyLedgerFactory
from gateway.ledger.rows import LedgerRows, RowTable

_Open: TypeAlias = Callable[[BaseModel, bool], AbstractContextManager[LedgerRows]]


class _Place(NamedTuple):
    """A ledger as the command line names it. `key` encrypts secrets in it; a URL does not say one."""

    name: str
    factory: AnyLedgerFactory
    settings: BaseModel
    file: bool = False
    key: SecretStr | None = None


def copy_storage(source: str, target: str, output: Output) -> None:
    """Raises: Stop."""
    here, there = _place(source), _place(target)
    read, write = _rows(here), _rows(there)
    _check(here, there)
    screen = Screen(sys.stdout, sys.stderr)
    try:
        with _opened(here, read, make=False) as rows:
            copied = copy(rows, _opened(there, write, make=True), (here.name, there.name), _progress(screen))
    except CopyFailed as error:
        raise Stop(ExitCode.UNREACHABLE, f"not copied: {error}") from error
    except KeyboardInterrupt as error:
        raise Stop(ExitCode.INTERRUPTED, "interrupted: the same command goes on where it stopped") from error
    finally:
        if screen.paints:
            screen.paint("")
    _print(here, there, copied, output)


def _place(text: str) -> _Place:
    """Raises: Stop."""
    scheme, colon, _ = text.partition(":")
    registry = Registry()
    known = registry.known("storage")
    if not (scheme in known if colon else text in known):
        if "://" in text or (colon and "@" in text and not Path(text).exists()):
            problem = f"{shown_url(text)}: there is no such kind of storage; installed: {', '.join(known)}"
            raise Stop(ExitCode.USAGE, problem)
        storage = _configured(Path(text))
        factory = registry.ledger(storage.url)
        name = _named(storage.address, factory, storage.settings)
        return _Place(name, factory, storage.settings, True, storage.encryption_key)
    try:
        factory = registry.ledger(text)
        settings = factory.settings.model_validate({"url": text}, context={"base_dir": Path.cwd()})
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(map(str, found["loc"]))
        problem = found["msg"].removeprefix("Value error, ")
        hint = "" if field == "url" else "; name a configuration file, which has all settings of the storage"
        raise Stop(ExitCode.USAGE, f"{shown_url(text)}: {field} {problem}{hint}") from error
    except ValueError as error:
        raise Stop(ExitCode.USAGE, f"{shown_url(text)}: {error}") from error
    return _Place(_named(shown_url(settings.url), factory, settings), factory, settings)


def _named(address: str, factory: AnyLedgerFactory, settings: BaseModel) -> str:
    part = None if factory.part is None else factory.part(settings)
    return address if part is None else f"{address} ({part})"


def _configured(file: Path) -> StorageConfig:
    """Raises: Stop."""
    try:
        return load_file(file).storage
    except Stop as stop:
        if file.suffix in {".yaml", ".yml"}:
            raise
        raise Stop(stop.code, f"{stop.text}\nA database is named by its URL, as {DEFAULT_URL}") from stop


def _rows(place: _Place) -> _Open:
    """Raises: Stop."""
    if not place.factory.keeps:
        raise Stop(ExitCode.USAGE, f"the storage {place.name} keeps nothing, so there is nothing to copy")
    if place.factory.rows is None:
        kind = place.name.partition(":")[0]
        raise Stop(ExitCode.USAGE, f"{place.name}: storage of the kind {kind} cannot be copied")
    return place.factory.rows


@contextmanager
def _opened(place: _Place, rows: _Open, *, make: bool) -> Iterator[LedgerRows]:
    """Raises: Stop."""
    try:
        with rows(place.settings, make) as opened:
            yield opened
    except LedgerUnavailable as error:
        raise Stop(ExitCode.UNREACHABLE, f"not copied: {place.name} cannot be used: {error}") from error


def _check(here: _Place, there: _Place) -> None:
    """Raises: Stop."""
    if here.settings == there.settings:
        raise Stop(ExitCode.USAGE, f"{here.name} is both the source and the target")
    if here.file and there.file and here.key != there.key:
        raise Stop(
            ExitCode.USAGE,
            "storage.encryption_key of the two configurations differs: what one has encrypted the other could not read. "
            "Give the target that of the source",
        )


def _progress(screen: Screen) -> Report:
    def report(doing: str, table: RowTable, rows: int) -> None:
        if screen.paints:
            screen.paint(f"{doing} {table.name}: {rows} rows")

    return report


def _print(here: _Place, there: _Place, copied: Copied, output: Output) -> None:
    rows = sum(table.rows for table in copied.tables)
    if output is Output.text:
        again = ", after it was interrupted" if copied.resumed else ""
        sys.stdout.write(
            visible(
                f"{here.name} is copied to {there.name}{again}: {rows} rows in {len(copied.tables)} tables, all equal\n"
            )
        )
        return
    tables: list[Any] = [{"name": each.name, "rows": each.rows, "digest": each.digest} for each in copied.tables]
    document = {"from": here.name, "to": there.name, "resumed": copied.resumed, "rows": rows, "tables": tables}
    print_json(tables, document, output)
