"""The gateway that the kits test, in each of the configurations. Law: the files of the kits are used where they are."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.polling import until

_COMMAND = Path(sys.executable).parent / "a2a-gateway"
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
_EXTENSION = "urn:a2a:tck:required-extension"


@dataclass(frozen=True, slots=True)
class Configuration:
    """`settings`: what differs from the kits' own file, as variables. `headers`: what every request of a kit says.
    `api_key`: whether it brings a key as well."""

    name: str
    settings: tuple[tuple[str, str], ...] = ()
    headers: tuple[str, ...] = ()
    api_key: bool = False


DEFAULT = Configuration("default")
REQUIRED_EXTENSION = Configuration(
    "required extension",
    (("AGENTS__TCK__CARD__EXTENSIONS", f"[{{uri: '{_EXTENSION}', required: true}}]"),),
    (f"A2A-Extensions: {_EXTENSION}", f"X-A2A-Extensions: {_EXTENSION}"),
)
REDUCED = Configuration("reduced", (("PUSH__ENABLED", "false"),))
API_KEYS = Configuration(
    "API keys",
    (
        ("AUTH__MODE", "any_of"),
        ("AUTH__API_KEYS__ENABLED", "true"),
        ("AGENTS__TCK__CARD__EXTENDED", "{skills: [{id: more, name: More, description: For callers, tags: [test]}]}"),
    ),
    api_key=True,
)

CONFIGURATIONS = (DEFAULT, REQUIRED_EXTENSION, REDUCED, API_KEYS)


@dataclass(frozen=True, slots=True)
class Served:
    """`headers`: a line each."""

    url: str
    headers: str


def bare_environment(folder: Path) -> dict[str, str]:
    """Without the caller's keys and proxies; nothing is written beside the sources."""
    home = {"HOME": str(folder), "TMPDIR": str(folder)}
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"} | home


@asynccontextmanager
async def serving(configuration: Configuration, file: Path, folder: Path) -> AsyncIterator[Served]:
    """Runs a gateway on a free port, with its database and its log in `folder`.

    Raises: RuntimeError with its log when it does not start.
    """
    own = {
        "SERVER": "{host: 127.0.0.1, port: 0, grpc: {port: 0}}",
        "STORAGE__URL": f"sqlite:///{folder / 'gateway.db'}",
    }
    settings = {f"A2A_GATEWAY__{name}": value for name, value in (own | dict(configuration.settings)).items()}
    environment = bare_environment(folder) | settings
    log = folder / "gateway.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            _COMMAND, "serve", "-c", file, env=environment, cwd=folder, stdout=output, stderr=output
        )
    try:
        await until(lambda: process.returncode is not None or _address(log) is not None)
        url = _address(log)
        if process.returncode is not None or url is None:
            raise RuntimeError(f"the gateway has not started:\n{log.read_text()}")
        headers = list(configuration.headers)
        if configuration.api_key:
            headers.append(f"Authorization: Bearer {await _new_key(file, environment, folder)}")
        yield Served(url, "\n".join(headers))
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _address(log: Path) -> str | None:
    found = _ADDRESS.search(log.read_text(errors="replace"))
    return found[0] if found else None


async def _new_key(file: Path, environment: dict[str, str], folder: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *(_COMMAND, "keys", "create", "conformance", "-c", file),
        env=environment,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, said = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"no key was made: {said.decode()}")
    return printed.decode().strip()
