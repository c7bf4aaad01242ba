"""The tables of docs/conformance.md. Law: the same results are the same text; no time and no order of runs is in it."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tests.conformance.gateways import CONFIGURATIONS
from tests.conformance.kits import LEVELS
from tests.conformance.results import ANY_TRANSPORT, Outcome, Result

BEGIN = "<!-- From here on it is written by `make conformance`. -->\n"
END = "<!-- To here. -->\n"

TITLES = {"tck10": "a2a-tck for 1.0", "tck03": "a2a-tck for 0.3", "acts": "ACTS"}
_TRANSPORTS = {ANY_TRANSPORT: "any", "jsonrpc": "JSON-RPC", "rest": "HTTP+JSON", "grpc": "gRPC"}
_VARIABLE = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|127\.0\.0\.1:\d+|\d+\.\d+ ?s\b")
"""What differs from one run to the next in the words of a kit: ids, ports and times."""


def tables(results: Iterable[Result], pins: Mapping[str, str]) -> str:
    ordered = sorted(results, key=lambda each: (*_place(each), each.test, each.outcome, each.reason))
    parts = [
        _table(("kit", "from"), ((title, pins[kit]) for kit, title in TITLES.items())),
        f"Passed / failed / skipped / waived:\n\n{counts(ordered)}",
        f"Failed:\n\n{_named(ordered, Outcome.FAILED)}",
        f"Waived:\n\n{_named(ordered, Outcome.WAIVED)}",
        f"<details><summary>Skipped by the kits themselves, and how often</summary>\n\n{_skipped(ordered)}\n</details>\n",
    ]
    return "\n".join(parts)


def written(page: str, generated: str) -> str:
    """The page with `generated` in its place."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{generated}\n{END}{after}"


def counts(results: Iterable[Result]) -> str:
    """A row for each kit, level and transport, a column for each configuration."""
    rows: dict[tuple[int, int, int], tuple[Result, dict[str, Counter[Outcome]]]] = {}
    for each in results:
        _, cells = rows.setdefault(_place(each), (each, {}))
        cells.setdefault(each.configuration, Counter())[each.outcome] += 1
    names = [configuration.name for configuration in CONFIGURATIONS]
    return _table(
        ("kit", "level", "transport", *names),
        (
            (TITLES[each.kit], each.level, _TRANSPORTS[each.transport], *(_cell(cells.get(name)) for name in names))
            for _, (each, cells) in sorted(rows.items())
        ),
    )


def _place(result: Result) -> tuple[int, int, int]:
    kits, transports = list(TITLES), list(_TRANSPORTS)
    return kits.index(result.kit), LEVELS[result.kit].index(result.level), transports.index(result.transport)


def _cell(counted: Counter[Outcome] | None) -> str:
    if counted is None:
        return ""
    shown = {each: str(counted[each]) for each in Outcome}
    if counted[Outcome.FAILED]:
        shown[Outcome.FAILED] = f"**{counted[Outcome.FAILED]}**"
    return " / ".join(shown.values())


def _named(results: Iterable[Result], outcome: Outcome) -> str:
    """Each test with the transports and configurations in which it has this outcome, and its reason."""
    found: dict[tuple[str, str, str], list[Result]] = {}
    for each in results:
        if each.outcome is outcome:
            found.setdefault((each.kit, _without_transport(each.test), _text(each.reason)), []).append(each)
    rows = [
        (TITLES[kit], f"`{test}`", _transports(those), _configurations(those), reason)
        for (kit, test, reason), those in found.items()
    ]
    return _table(("kit", "test", "transport", "configuration", "why"), rows) if rows else "none\n"


def _transports(results: Iterable[Result]) -> str:
    present = {each.transport for each in results}
    return ", ".join(title for transport, title in _TRANSPORTS.items() if transport in present)


def _configurations(results: Iterable[Result]) -> str:
    present = {each.configuration for each in results}
    named = [each.name for each in CONFIGURATIONS if each.name in present]
    return "all" if len(named) == len(CONFIGURATIONS) else ", ".join(named)


def _without_transport(test: str) -> str:
    """The name of the class and the function, or that of the requirement."""
    name = re.sub(r"-?(grpc|jsonrpc|http_json)\]$", "]", test).replace("[]", "")
    module, _, function = name.rpartition("::")
    owner = module.rpartition(".")[2]
    return f"{owner}::{function}" if owner else function


def _skipped(results: Iterable[Result]) -> str:
    found = Counter((each.kit, _text(each.reason)) for each in results if each.outcome is Outcome.SKIPPED)
    rows = ((TITLES[kit], str(number), reason) for (kit, reason), number in sorted(found.items()))
    return _table(("kit", "tests", "why"), rows)


def _text(reason: str) -> str:
    return _VARIABLE.sub("…", reason).replace("|", "\\|")


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
