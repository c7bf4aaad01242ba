"""The CPythons of this machine that the gateway runs on: on the PATH, and where only pyenv has them."""

import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

_NAME = re.compile(r"python3\.\d+")
_ASKED = (
    "import sys; print(sys.implementation.name, *sys.version_info[:2], sys.version_info.releaselevel, sys.executable)"
)


def interpreters() -> dict[str, str]:
    """Their paths by version (`3.11`), the oldest first; of several with one version the first on the PATH."""
    oldest = int(PROJECT["requires-python"].removeprefix(">=3."))
    found: dict[int, str] = {}
    for candidate in _candidates():
        # A name on the PATH may be a launcher for a version that is not there.
        done = subprocess.run([candidate, "-c", _ASKED], capture_output=True, text=True, check=False)
        match done.stdout.split():
            case ["cpython", "3", minor, "final", executable] if int(minor) >= oldest:
                found.setdefault(int(minor), executable)
    return {f"3.{minor}": found[minor] for minor in sorted(found)}


def chosen(words: str) -> dict[str, str]:
    """Of all: `all`, or a list of versions, `oldest` and `newest` among them, with commas. Raises: KeyError for one that is not
    there."""
    found = interpreters()
    if words == "all":
        return found
    names = {"oldest": next(iter(found)), "newest": next(reversed(found))}
    return {version: found[version] for version in dict.fromkeys(names.get(word, word) for word in words.split(","))}


def _candidates() -> Iterator[Path]:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    folders = [*map(Path, os.environ["PATH"].split(os.pathsep)), *sorted(pyenv.glob("*/bin"))]
    for folder in dict.fromkeys(folder for folder in folders if folder.is_dir()):
        yield from sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
