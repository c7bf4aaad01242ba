"""The page of conformance says what came out, and hides no failure."""

import random
import re
from pathlib import Path

from tests.conformance import page
from tests.conformance.kits import LEVELS, is_gating
from tests.conformance.results import ANY_TRANSPORT, KITS, Outcome, Result

_PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
_PINS = {kit: f"a2aproject/{kit}, branch main, 0123abc" for kit in KITS}


def _result(outcome: Outcome, **changed: str) -> Result:
    values = {"kit": "tck10", "configuration": "default", "level": "must", "transport": "jsonrpc", "test": "a::test_it"}
    return Result(**(values | changed), outcome=outcome)


def test_a_row_counts_each_outcome_in_each_configuration() -> None:
    results = [
        _result(Outcome.PASSED),
        _result(Outcome.PASSED, test="a::test_another"),
        _result(Outcome.WAIVED, test="a::test_a_third", reason="a fault of the kit"),
        _result(Outcome.PASSED, transport=ANY_TRANSPORT),
        _result(Outcome.FAILED, configuration="API keys"),
    ]
    assert page.counts(results) == (
        "| kit | level | transport | default | required extension | reduced | API keys |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        "| a2a-tck for 1.0 | must | any | 1 / 0 / 0 / 0 |  |  |  |\n"
        "| a2a-tck for 1.0 | must | JSON-RPC | 2 / 0 / 0 / 1 |  |  | 0 / **1** / 0 / 0 |\n"
    )


def test_the_order_in_which_kits_end_does_not_change_the_page() -> None:
    results = [
        _result(outcome, level=level, test=f"a::{test}")
        for outcome in Outcome
        for level in LEVELS["tck10"]
        for test in "abc"
    ]
    shuffled = random.Random(1).sample(results, len(results))
    assert page.tables(shuffled, _PINS) == page.tables(results, _PINS)


def test_what_people_have_written_around_the_tables_stays() -> None:
    old = f"# Conformance\n\nWords.\n\n{page.BEGIN}old tables\n{page.END}\nMore words.\n"
    new = page.written(old, "| new |\n")
    assert new == f"# Conformance\n\nWords.\n\n{page.BEGIN}\n| new |\n\n{page.END}\nMore words.\n"
    assert page.written(new, "| new |\n") == new


def test_the_page_shows_no_failure_that_is_not_accepted() -> None:
    titles = {title: kit for kit, title in page.TITLES.items()}
    rows = re.findall(r"^\| ([^|]+) \| ([a-z-]+) \| [^|]+ \| (.*) \|$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    counted = [(titles[kit], level, cells) for kit, level, cells in rows if kit in titles and " / " in cells]
    assert {kit for kit, _, _ in counted} == set(KITS)
    assert [row for row in counted if is_gating(row[0], row[1]) and "**" in row[2]] == []
