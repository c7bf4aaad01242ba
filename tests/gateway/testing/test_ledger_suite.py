"""The conformance suite of the ledger port: wrong ledgers fail where they are wrong. SQLite passes it in `tests/storage`."""

import inspect
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from gateway.ledger.calls import Complete
from gateway.ledger.threads import Caller
from gateway.testing import checks
from gateway.testing.ledger_refusals import CONFLICTS
from gateway.testing.ledger_suite import LedgerSuite
from tests.gateway.testing import broken_ledgers as broken
from tests.gateway.testing.broken_ledgers import Around

LATE = next(name for name, (_, point) in CONFLICTS.items() if isinstance(point, Complete) and point.generation == 0)
LATE_FOR_EVER = {
    broken.WakesNobody,
    broken.StandsStill,
    broken.HearsNothing,
    broken.HearsOfOthers,
    broken.TellsOneReader,
}
"""These do nothing wrong but to wait."""

WRONG: list[tuple[type[Around], str, dict[str, Any]]] = [
    (broken.Forgets, "what_was_committed_is_there_after_opening_again", {}),
    (broken.Forgets, "what_was_submitted_is_stored_before_the_ledger_is_closed", {}),
    (broken.Forgets, "of_many_that_accept_at_once_one_makes_the_context", {}),
    (broken.Forgets, "what_one_process_commits_the_other_reads_at_once", {}),
    (broken.CommitsPointByPoint, "points_of_one_commit_are_stored_together_or_not_at_all", {}),
    (broken.SwallowsConflicts, "a_point_that_does_not_find_its_rows_is_a_conflict_and_changes_nothing", {"name": LATE}),
    (broken.SwallowsConflicts, "an_idempotency_key_makes_one_task", {}),
    (
        broken.IgnoresGenerations,
        "a_point_that_does_not_find_its_rows_is_a_conflict_and_changes_nothing",
        {"name": LATE},
    ),
    (broken.IgnoresGenerations, "a_holder_that_was_fenced_off_changes_nothing_any_more", {}),
    (broken.IgnoresGenerations, "no_tool_starts_behind_a_fence_that_has_seen_it_not_started", {}),
    (broken.TakesTheCommitBack, "a_commit_is_not_taken_back_when_its_caller_is_cancelled", {}),
    (broken.ConfirmsBeforeItIsStored, "done_is_called_in_the_order_of_submission_with_what_became_of_the_points", {}),
    (broken.ConfirmsInAnotherOrder, "done_is_called_in_the_order_of_submission_with_what_became_of_the_points", {}),
    (broken.ConfirmsInAnotherOrder, "one_refused_submission_does_not_change_the_order", {}),
    (broken.HasATimeOfItsOwn, "two_processes_have_the_same_time", {}),
    (broken.StandsStill, "the_time_goes_on_between_two_commits", {}),
    (broken.HearsNothing, "a_cancel_that_one_process_asks_for_is_a_change_of_its_task", {}),
    (broken.HearsNothing, "what_is_committed_while_nobody_wants_changes_is_heard_of_later", {}),
    (broken.HearsOfOthers, "each_commit_is_heard_of_by_every_process_when_it_can_be_read", {}),
    (broken.TellsOneReader, "the_changes_can_be_read_by_several_and_again", {}),
    (broken.HearsOnceForEachCommit, "many_commits_that_nobody_heard_are_joined", {}),
    (broken.ShowsTasksOfOthers, "what_belongs_to_another_is_not_there", {"stranger": Caller("eve", "acme")}),
    (broken.ReadsTheWholeThread, "a_view_of_the_end_is_the_view_of_the_whole", {"seed": 1}),
    (broken.HasSecretsOfItsOwn, "a_secret_is_made_once_for_each_name", {}),
    (broken.WakesNobody, "who_does_the_jobs_at_backends_is_woken_after_each_commit_that_queues_some", {}),
    (broken.ImportsNothing, "an_imported_context_is_the_exported_one", {}),
]


async def passes(kind: type[Around], test: str, values: dict[str, Any], folder: Path) -> bool:
    method = getattr(LedgerSuite(), f"test_{test}")
    wanted = inspect.signature(method).parameters
    opener = broken.opener(kind, folder)
    async with AsyncExitStack() as stack:
        opened = {name: await stack.enter_async_context(opener()) for name in ("ledger", "other") if name in wanted}
        try:
            await method(**opened, **({"opener": opener} if "opener" in wanted else {}), **values)
        except (Exception, pytest.fail.Exception):  # noqa: BLE001  # whatever a test raises, it has failed
            return False
    return True


@pytest.mark.parametrize(("kind", "test", "values"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_wrong_ledger_fails_where_it_is_wrong(
    kind: type[Around], test: str, values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for made, folder in ((Around, tmp_path / "right"), (kind, tmp_path / "wrong")):
        monkeypatch.setattr(checks, "BOUND", 0.2 if made in LATE_FOR_EVER else checks.BOUND)
        assert await passes(made, test, values, folder) is (made is Around)


def test_the_fixture_is_asked_for_by_name() -> None:
    with pytest.raises(NotImplementedError, match="opener"):
        LedgerSuite.__dict__["opener"]._get_wrapped_function()(LedgerSuite())
