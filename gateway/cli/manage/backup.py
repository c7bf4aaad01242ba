"""`backup` and `restore`: the database of a configuration as one file. Law: the ledger's plug-in does the work; an error names
the file and what to do."""

import os
import shlex
import sys
from pathlib import Path

from gateway.cli.console.output import ExitCode, Stop, config_option, program, reason_of, visible
from gateway.cli.serve.sources import load_file
from gateway.config.plugins import Registry
from gateway.config.storage import StorageConfig
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.port import AnyLedgerFactory


def back_up(file: Path, target: Path) -> None:
    """Raises: Stop."""
    storage = load_file(file).storage
    copy = _factory(storage).back_up
    if copy is None:
        raise _no_files(storage.url)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Stop(ExitCode.USAGE, f"the folder {target.parent} cannot be made: {reason_of(error)}") from error
    try:
        copy(storage.settings, target)
        size = target.stat().st_size
    except FileExistsError as error:
        raise Stop(ExitCode.USAGE, f"{target} is there already: choose another name") from error
    except LedgerUnavailable as error:
        raise Stop(ExitCode.UNREACHABLE, f"no backup was made: {error}") from error
    except OSError as error:
        raise Stop(
            ExitCode.UNREACHABLE, f"no backup was made: {target} cannot be written: {reason_of(error)}"
        ) from error
    sys.stdout.write(visible(f"{target}: {size / 1e6:.1f} MB, checked\n"))


def restore(file: Path, source: Path, *, replace: bool) -> None:
    """Raises: Stop."""
    storage = load_file(file).storage
    put_back = _factory(storage).restore
    if put_back is None:
        raise _no_files(storage.url)
    try:
        kept = put_back(source, storage.settings, replace)
    except FileExistsError as error:
        command = f"{program()} restore {shlex.quote(str(source))} --replace{config_option(file)}"
        raise Stop(ExitCode.USAGE, f"{error}\nTo keep it under another name and go on: {command}") from error
    except LedgerUnavailable as error:
        raise Stop(ExitCode.UNREACHABLE, f"nothing was restored: {error}") from error
    except OSError as error:
        written = error.filename2 or error.filename
        place = "" if written is None else f"the folder {Path(os.fsdecode(written)).parent}: "
        raise Stop(ExitCode.UNREACHABLE, f"nothing was restored: {place}{reason_of(error)}") from error
    sys.stdout.write(visible(f"{source} is the database of {file} now\n"))
    if kept is not None:
        sys.stdout.write(visible(f"the database that was there is kept as {kept}\n"))


def _factory(storage: StorageConfig) -> AnyLedgerFactory:
    """Raises: Stop."""
    factory = Registry().ledger(storage.url)
    if not factory.keeps:
        raise Stop(
            ExitCode.USAGE, f"the storage {storage.address} keeps nothing, so there is nothing to back up or to restore"
        )
    return factory


def _no_files(url: str) -> Stop:
    return Stop(ExitCode.USAGE, f"the storage {url.partition(':')[0]} is backed up with its own tools")
