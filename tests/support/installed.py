"""Packages with plug-ins, installed into a folder for a process of its own: the installed packages are read once."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

VERSION = "1.2"


def install(
    folder: Path,
    packages: Mapping[str, Mapping[str, str]],
    modules: Mapping[str, str],
    group: str = "a2a_gateway.adapters",
) -> None:
    """`packages` are entry points by the names of their packages, `modules` source texts by name."""
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)
    for package, entries in packages.items():
        info = folder / f"{package.replace('-', '_')}-{VERSION}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {VERSION}\n")
        lines = (f"{name} = {value}\n" for name, value in entries.items())
        (info / "entry_points.txt").write_text(f"[{group}]\n{''.join(lines)}")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command with these packages, in their folder."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "gateway", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
