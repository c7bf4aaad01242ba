"""The runs of the official kits: which kit, against which configuration, over which transport.

Law: a kit runs by its wrapper beside it, from a copy of its sources, because it writes into its own folder.
"""

import asyncio
import os
import re
import shutil
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2

from tests.conformance.gateways import (
    API_KEYS,
    CONFIGURATIONS,
    REQUIRED_EXTENSION,
    Configuration,
    Served,
    bare_environment,
    serving,
)
from tests.conformance.results import ANY_TRANSPORT, Outcome, Result, acts_outcomes, junit_outcomes, transport_of

_COMPARING = "transport-equivalence"
LEVELS = {
    "tck10": ("must", "should", "may"),
    "tck03": ("mandatory", "mandatory-extra", "capabilities", _COMPARING, "quality", "features"),
    "acts": ("must", "should", "may"),
}
_GATING = {
    "tck10": frozenset({"must", "may"}),
    "tck03": frozenset({"mandatory", "mandatory-extra", "capabilities", _COMPARING}),
    "acts": frozenset({"must"}),
}
_SILENT = {
    ("tck10", REQUIRED_EXTENSION): ("TestCapabilityExtensionRequired",),
    ("tck03", API_KEYS): (
        *("test_auth_enforcement", "test_missing_authentication"),
        *("test_extended_agent_card_authentication_required", "test_authenticated_extended_card_without_auth"),
        *("test_extended_card_access_controls", "test_authentication_scheme_validation"),
    ),
    ("acts", API_KEYS): (
        *("SEC-AUTH-001", "SEC-AUTH-002", "SEC-AUTH-004", "SEC-AUTH-006"),
        *("SEC-EXTCARD-001", "SEC-EXTCARD-002", "SEC-EXTCARD-004"),
    ),
}
"""Tests of a caller that does not say what the configuration wants, and is to be refused."""

_TRANSPORTS = {"JSONRPC": "jsonrpc", "HTTP+JSON": "rest", "GRPC": "grpc"}
_INSIDE = Path(__file__).parent / "inside"
_WITHIN_SECONDS = 1200

TestOutcome = tuple[str, str, Outcome, str]
"""Level, test, outcome, reason."""


@dataclass(frozen=True, slots=True)
class Place:
    """`kits`: the folder of the kits. `python`: an interpreter with all that they import. `work`: for copies and reports."""

    kits: Path
    python: Path
    work: Path


@dataclass(frozen=True, slots=True)
class Run:
    """One kit against a gateway of its own. `transport`: ANY_TRANSPORT for all that the card declares."""

    kit: str
    configuration: Configuration
    transport: str

    @property
    def name(self) -> str:
        return "-".join((self.kit, self.transport, *self.configuration.name.split()))

    @property
    def levels(self) -> tuple[str, ...]:
        """What compares transports runs over any, all else over one at a time, in the kit for 0.3."""
        levels = LEVELS[self.kit]
        if self.kit != "tck03":
            return levels
        return tuple(each for each in levels if (each == _COMPARING) is (self.transport == ANY_TRANSPORT))

    @property
    def silent(self) -> tuple[str, ...]:
        return _SILENT.get((self.kit, self.configuration), ())


def all_runs() -> list[Run]:
    """The longest first."""
    by_transport = (
        Run(kit, configuration, transport)
        for kit in ("tck03", "acts")
        for configuration in CONFIGURATIONS
        for transport in ("jsonrpc", "rest")
    )
    over_any = {kit: [Run(kit, each, ANY_TRANSPORT) for each in CONFIGURATIONS] for kit in ("tck10", "tck03")}
    return [*over_any["tck10"], *by_transport, *over_any["tck03"]]


def is_gating(kit: str, level: str) -> bool:
    """Whether no failure of this level is accepted: it is what must be, or what the card declares."""
    return level in _GATING[kit]


def failures(results: Iterable[Result]) -> Iterator[Result]:
    return (each for each in results if each.outcome is Outcome.FAILED and is_gating(each.kit, each.level))


def pinned(kits: Path) -> dict[str, str]:
    """Kit -> repository, branch and commit, as the README beside the kits says."""
    row = re.compile(r"^\| `(\w+)/` \|.*\| (\S+, branch \S+, [0-9a-f]{7,}) ", re.MULTILINE)
    return dict(row.findall((kits / "README.md").read_text(encoding="utf-8")))


def copy_sources(place: Place) -> None:
    """The copies may be written and deleted, whatever the originals allow."""
    for kit in ("tck10", "tck03"):
        copy = place.work / "sources" / kit
        shutil.copytree(place.kits / kit, copy, copy_function=shutil.copyfile)
        for folder in (copy, *(each for each in copy.rglob("*") if each.is_dir())):
            folder.chmod(0o755)


async def conduct(run: Run, place: Place) -> list[Result]:
    """Raises: FileNotFoundError for the report of a kit that has not come to its end."""
    folder = place.work / run.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    async with serving(run.configuration, place.kits / "gateway.yaml", folder) as served:
        match run.kit:
            case "tck10":
                outcomes = await _tck(run, ["run_tck_10.sh", served.url], served, place, folder)
                declared = await _declared(served.url)
                return [each for each in _results(run, outcomes) if each.transport in declared]
            case "tck03":
                return _results(run, await _tck(run, ["run_tck_03.sh", f"{served.url}/a2a/tck"], served, place, folder))
            case _:
                return _results(run, await _acts(run, served, place, folder))


def _results(run: Run, outcomes: Iterable[TestOutcome]) -> list[Result]:
    """The kit for 1.0 goes over all transports in one run, and has them in the names of its tests."""
    return [
        Result(
            run.kit,
            run.configuration.name,
            level,
            transport_of(test) if run.kit == "tck10" else run.transport,
            test,
            outcome,
            reason,
        )
        for level, test, outcome, reason in outcomes
    ]


async def _declared(url: str) -> set[str]:
    async with httpx2.AsyncClient(trust_env=False) as client:
        card = (await client.get(f"{url}/.well-known/agent-card.json")).json()
    return {_TRANSPORTS[each["protocolBinding"]] for each in card["supportedInterfaces"]} | {ANY_TRANSPORT}


async def _tck(run: Run, command: list[str], served: Served, place: Place, folder: Path) -> list[TestOutcome]:
    environment = {
        "TCK_SRC": str(place.work / "sources" / run.kit),
        "TCK_VENV": str(place.python.parents[1]),
        "TCK_LEVELS" if run.kit == "tck10" else "TCK_CATEGORIES": " ".join(run.levels),
    }
    if run.transport != ANY_TRANSPORT:
        environment["TCK_TRANSPORTS"] = run.transport
    script: list[str | Path] = ["bash", place.kits / command[0], *command[1:]]
    # Without spaces, at which a wrapper splits its arguments.
    silent = "or".join(f"({test})" for test in run.silent)
    spoken = ["-p", "grpc_headers"] if served.headers else []
    passes = {"kit": (served.headers, [*spoken, *(["-k", f"not({silent})"] if silent else [])])}
    if silent:
        passes["silent"] = ("", ["-k", silent])
    outcomes = []
    for name, (headers, selection) in passes.items():
        own = {"TCK_OUT": str(folder / name), "TCK_HEADERS": headers, "PYTHONPATH": str(_INSIDE)}
        await _run([*script, *selection], environment | own, folder / f"{name}.log")
        for level in run.levels:
            outcomes += [(level, *found) for found in junit_outcomes(folder / name / f"{level}.xml")]
    return outcomes


async def _acts(run: Run, served: Served, place: Place, folder: Path) -> list[TestOutcome]:
    """The runner gives its headers to some of its requests only, which is what the silent tests need."""
    arguments: list[str | Path] = [place.kits / "run_acts.py", served.url, place.kits / "acts", run.transport, "--json"]
    headers = {"A2A_HEADERS": served.headers}
    await _run(
        [place.python, _INSIDE / "with_headers.py", *arguments, folder / "kit.json"], headers, folder / "kit.log"
    )
    outcomes = list(acts_outcomes(folder / "kit.json"))
    if run.silent:
        silent = [*arguments, folder / "silent.json", "--only", ",".join(run.silent)]
        await _run([place.python, *silent], headers, folder / "silent.log")
        outcomes = [each for each in outcomes if each[1] not in run.silent]
        outcomes += acts_outcomes(folder / "silent.json")
    return outcomes


async def _run(command: list[str | Path], environment: dict[str, str], log: Path) -> None:
    """Whatever its exit code is: the reports count. What it has started ends with it."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=bare_environment(log.parent) | environment,
            cwd=log.parent,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        async with asyncio.timeout(_WITHIN_SECONDS):
            await process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
