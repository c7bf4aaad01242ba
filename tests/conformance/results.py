"""What the kits report, test by test. Law: a failure that no waiver names stays a failure."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree as ET

KITS = ("tck10", "tck03", "acts")
"""The kits, by the names of their folders."""

ANY_TRANSPORT = "all"
"""The transport of a test that asks for the card, or that goes over all transports by itself."""

_IN_PARAMETERS = re.compile(r"\[(?:.*-)?(grpc|jsonrpc|http_json)(?:-.*)?\]$")
_AT_THE_END = re.compile(r"_(grpc|jsonrpc|http_json|rest)$")
_MODULE = re.compile(r"\.(grpc|jsonrpc|http_json)\.")
_CLASS = re.compile(r"\.Test(Grpc|JsonRpc|Rest)\w*::")
_NAMES = {"http_json": "rest", "JsonRpc": "jsonrpc", "Grpc": "grpc", "Rest": "rest"}


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    WAIVED = "waived"


@dataclass(frozen=True, slots=True)
class Result:
    """`level`: how the kit calls what must be, should be and may be. `transport`: `jsonrpc`, `rest`, `grpc` or ANY_TRANSPORT.
    `reason`: why it failed, was skipped or is waived."""

    kit: str
    configuration: str
    level: str
    transport: str
    test: str
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Waiver:
    """A fault of the kit itself. `test`: a part of the test's name, or with a $ its end. `transport`: where it is one, if
    not everywhere."""

    kit: str
    test: str
    reason: str
    transport: str | None = None

    def covers(self, result: Result) -> bool:
        end = self.test.removesuffix("$")
        named = end in result.test if end == self.test else result.test.endswith(end)
        here = result.kit == self.kit and self.transport in {None, result.transport}
        return here and named and result.outcome is Outcome.FAILED


def transport_of(test: str) -> str:
    """The transport that a test of the kit for 1.0 is about, by its name."""
    for pattern in (_IN_PARAMETERS, _AT_THE_END, _MODULE, _CLASS):
        found = pattern.search(test)
        if found is not None:
            return _NAMES.get(found[1], found[1])
    return ANY_TRANSPORT


def junit_outcomes(report: Path) -> Iterator[tuple[str, Outcome, str]]:
    """(test, outcome, reason) of a report of pytest. A requirement that pytest expects to fail, and that fails, is not met."""
    for case in ET.parse(report).getroot().iter("testcase"):
        test = f"{case.get('classname', '')}::{case.get('name', '')}"
        failure, skip = case.find("failure"), case.find("skipped")
        if failure is None:
            failure = case.find("error")
        if failure is None and skip is not None and skip.get("type") == "pytest.xfail":
            failure = skip
        if failure is not None:
            yield test, Outcome.FAILED, _first_line(failure)
        elif skip is not None:
            yield test, Outcome.SKIPPED, _first_line(skip)
        else:
            yield test, Outcome.PASSED, ""


def _first_line(element: ET.Element) -> str:
    return (element.get("message") or "").partition("\n")[0]


def acts_outcomes(report: Path) -> Iterator[tuple[str, str, Outcome, str]]:
    """(level, test, outcome, reason) of a report of the runner of ACTS."""
    outcomes = {"PASS": Outcome.PASSED, "FAIL": Outcome.FAILED, "SKIP": Outcome.SKIPPED}
    for outcome, level, test, _, reason in json.loads(report.read_text(encoding="utf-8")):
        yield level, test, outcomes[outcome], reason or ""


def read_waivers(folder: Path) -> Iterator[Waiver]:
    """Those of waivers_KIT.txt and, for one transport, waivers_KIT_TRANSPORT.txt. A line is `test  # reason`."""
    for file in sorted(folder.glob("waivers_*.txt")):
        _, kit, *transport = file.stem.split("_")
        for line in file.read_text(encoding="utf-8").splitlines():
            test, _, reason = line.partition("#")
            if test.strip():
                yield Waiver(kit, test.strip(), reason.strip(), *transport)


def waive(results: Iterable[Result], waivers: Iterable[Waiver]) -> Iterator[Result]:
    """The results, with the failures that a waiver names as waived."""
    known = list(waivers)
    for result in results:
        waiver = next((each for each in known if each.covers(result)), None)
        yield result if waiver is None else replace(result, outcome=Outcome.WAIVED, reason=waiver.reason)
