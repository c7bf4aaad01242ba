"""Packages with plug-ins, installed into a folder for a process of its own: the installed packages are read once."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

VERSION = "1.2"
_ROOT = Path(__file__).parents[2]


def install(
    folder: Path,
    packages: Mapping[str, Mapping[str, str]],
    modules: Mapping[str, str],
    targets: Mapping[str, str] | None = None,
    ledgers: Mapping[str, str] | None = None,
) -> None:
    """`packages` are adapters, as entry points, by the names of their packages, each of which brings these `targets`
    and `ledgers`, too; `modules` are source texts by name."""
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)
    for package, entries in packages.items():
        info = folder / f"{package.replace('-', '_')}-{VERSION}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {VERSION}\n")
        lines = ["[a2a_gateway.adapters]", *(f"{name} = {value}" for name, value in entries.items())]
        lines += ["[a2a_gateway.targets]", *(f"{name} = {value}" for name, value in (targets or {}).items())]
        lines += ["[a2a_gateway.ledgers]", *(f"{name} = {value}" for name, value in (ledgers or {}).items())]
        (info / "entry_points.txt").write_text("".join(f"{line}\n" for line in lines))


def search_path(folder: Path) -> str:
    """Where a process finds these packages, and the modules of the tests."""
    return f"{folder}{os.pathsep}{_ROOT}"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command with these packages, in their folder."""
    environment = os.environ | {"PYTHONPATH": search_path(folder)}
    command = [sys.executable, "-m", "gateway", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
