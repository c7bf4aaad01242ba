"""Runs the commands of a page as a reader types them: in bash, in a folder of their own, beside what a checkout has.

Law: the text is run as it stands, but for three things that a reader does without being told. A gateway is left running in
another terminal (the next one takes its place), a server that goes to the background is given the time to come up, and a port
that somebody has is replaced by a free one.
"""

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.pages.blocks import ROOT
from tests.support.ports import free_port

_WITHIN_SECONDS = 180
_OF_THE_CHECKOUT = ("deploy", "docs", "examples", "tests")
_SERVES = re.compile(r"(?:^|/|\s)a2a-gateway (serve|demo)\b")
_COMMENT = re.compile(r"\s+#.*$")
_PRELUDE = """\
gateway=
ended() { [ -z "$gateway" ] || { kill "$gateway"; wait "$gateway" || true; gateway=; }; }
serving() { gateway=$!; until a2a-gateway health >/dev/null 2>&1; do kill -0 "$gateway"; sleep 0.1; done; }
listening() { until (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; do sleep 0.1; done; }
"""


@dataclass(frozen=True, slots=True)
class Told:
    """How a script has ended; `output` is the script and all that it has written."""

    code: int
    output: str


def script(text: str, ports: Mapping[str, int], codes: Sequence[int] = ()) -> str:
    """The commands as a script. `ports` has a free one for each that the text names; a command of the gateway may end with one
    of `codes` as well as with 0."""
    for named, free in ports.items():
        text = re.sub(rf"(?<!\d){named}(?!\d)", str(free), text)
    return _PRELUDE + "".join(f"{_line(line, ports, codes)}\n" for line in _whole_lines(text))


def _whole_lines(text: str) -> list[str]:
    """The lines; one that goes on behind a backslash, or has a document behind it, with all that belongs to it."""
    whole: list[str] = []
    ends = ""
    for line in text.splitlines():
        if ends or (whole and whole[-1].endswith("\\")):
            whole[-1] += f"\n{line}"
            ends = "" if line == ends else ends
        else:
            whole.append(line)
            begins = re.search(r"<<'?(\w+)'?$", line)
            ends = begins[1] if begins else ""
    return whole


def _line(line: str, ports: Mapping[str, int], codes: Sequence[int]) -> str:
    if "\n" in line:
        return line
    command = _COMMENT.sub("", line).rstrip()
    serves = _SERVES.search(command)
    if serves is not None and "&" not in command.removesuffix("&"):
        port = ' --port "$A2A_GATEWAY__SERVER__PORT"' if serves[1] == "demo" else ""
        return f"ended\n{command.removesuffix('&').rstrip()}{port} &\nserving"
    if command.endswith("&"):
        return "\n".join([command, *(f"listening {port}" for port in ports.values() if str(port) in command)])
    if codes and "a2a-gateway" in command and not {"|", "&"} & set(command):
        return f"{command} || case $? in {'|'.join(map(str, codes))}) ;; *) exit 1 ;; esac"
    return line


def run(
    text: str,
    folder: Path,
    programs: Path,
    env: Mapping[str, str],
    *,
    ports: Sequence[str] = (),
    codes: Sequence[int] = (),
) -> Told:
    """Runs the commands in the folder, with the programs of an environment before all others, and ends all that they have left.

    `env` are more variables, `ports` those that the text names and a free one replaces.
    """
    for name in _OF_THE_CHECKOUT:
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    if not (folder / ".venv").exists():
        (folder / ".venv").symlink_to(programs.parent)
    port = free_port()
    environment = {
        "PATH": os.pathsep.join((str(programs), os.environ["PATH"])),
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "A2A_GATEWAY__SERVER__PORT": str(port),
        "A2A_GATEWAY_URL": f"http://127.0.0.1:{port}",
        **env,
    }
    made = script(text, {named: free_port() for named in ports}, codes)
    log = folder / "output.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", made],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(_WITHIN_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Told(code, f"{made}\n---\n{log.read_text(errors='replace')}")
