"""Runs the official kits and writes what came out into docs/conformance.md: python -m tests.conformance KITS PYTHON WORK

KITS: the folder of the kits. PYTHON: an interpreter that has what they import. WORK: a folder for reports, emptied first.
"""

import argparse
import asyncio
import difflib
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.conformance import page
from tests.conformance.kits import Place, Run, all_runs, conduct, copy_sources, failures, pinned
from tests.conformance.results import Result, Waiver, read_waivers, waive

_PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
_OWN_WAIVERS = Path(__file__).parent / "waivers"


def main() -> int:
    options = _options()
    place = Place(options.kits.absolute(), options.python.absolute(), options.work.absolute())
    shutil.rmtree(place.work, ignore_errors=True)
    copy_sources(place)
    runs = [run for run in all_runs() if not options.only or run.name in options.only]
    waivers = [*read_waivers(place.kits), *read_waivers(_OWN_WAIVERS)]
    results = asyncio.run(_all(runs, place, waivers))
    bad = list(failures(results))
    for each in bad:
        _say(f"FAILED {each.configuration}, {each.kit} {each.level}, {each.transport}: {each.test}\n  {each.reason}")
    if options.only:
        _say(page.counts(results))
    else:
        sys.stdout.writelines(_page(results, place, check=options.check))
    _say(f"{len(results)} results, {len(bad)} failures that are not accepted; reports are in {options.work}")
    return 1 if bad else 0


def _page(results: Sequence[Result], place: Place, *, check: bool) -> list[str]:
    """Writes the page, or gives the lines in which it would differ."""
    old = _PAGE.read_text(encoding="utf-8")
    new = page.written(old, page.tables(results, pinned(place.kits)))
    if check:
        names = ("docs/conformance.md", "this run; write it: make conformance")
        return list(difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), *names))
    _PAGE.write_text(new, encoding="utf-8")
    return []


async def _all(runs: Sequence[Run], place: Place, waivers: Sequence[Waiver]) -> list[Result]:
    """In the order of `runs`, whichever ends first. The kits wait for seconds, which a busy machine may not have: a run with a
    failure is repeated alone, and what it says then counts."""
    # More than cores: the kits wait most of the time.
    room = asyncio.Semaphore(2 * (os.cpu_count() or 1) + 1)

    async def one(run: Run) -> list[Result]:
        async with room:
            began = time.monotonic()
            found = list(waive(await conduct(run, place), waivers))
            _say(f"{run.name}: {len(found)} results in {time.monotonic() - began:.0f} s")
            return found

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(run)) for run in runs]
    results: list[Result] = []
    for run, task in zip(runs, tasks, strict=True):
        found = task.result()
        if any(failures(found)):
            _say(f"{run.name} again")
            found = await one(run)
        results += found
    return results


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance")
    for name in ("kits", "python", "work"):
        parser.add_argument(name, type=Path)
    parser.add_argument(
        "--check", action="store_true", help="leave the page as it is, and tell where it says something else"
    )
    parser.add_argument("--only", nargs="+", metavar="RUN", help="these runs, as acts-rest-default, and no page")
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
