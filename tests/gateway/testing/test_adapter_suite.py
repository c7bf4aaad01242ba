"""The conformance suite of the adapter port: a right adapter passes it, and each wrong one fails where it is wrong."""

import inspect
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.ports.adapter import Adapter, AdapterFactory, StateKind
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner
from gateway.ports.tools import ToolDeclaration
from gateway.testing import checks
from gateway.testing.adapter_suite import AdapterSuite
from tests.gateway.testing import broken_adapters as broken
from tests.gateway.testing import broken_run_adapters, broken_tool_adapters
from tests.gateway.testing.broken_adapters import SECRET, Backend, Right
from tests.gateway.testing.broken_run_adapters import Continues

GATEWAY = Ownership(StorageOwner.GATEWAY, HandleKind.NONE)
ROTATING = Ownership(StorageOwner.BACKEND, HandleKind.ROTATING)
STATIC = Ownership(StorageOwner.BACKEND, HandleKind.STATIC)


class Drives(AdapterSuite):
    """All hooks, for the backend in this process."""

    factory = AdapterFactory(
        dict,  # never read
        lambda _: Right(Backend(), GATEWAY),
        "a backend in this process",
        tuple(
            StateKind(each.owner, each.handle, kind)
            for each in (GATEWAY, ROTATING, STATIC)
            for kind in (Right, broken_run_adapters.Continues)
        ),
    )
    secret = SECRET
    owner = GATEWAY
    backend: Backend

    @pytest.fixture
    def adapter(self) -> Right:
        self.backend = Backend()
        return Right(self.backend, self.owner)

    def _set(self, pieces: tuple[str, ...] | None, ending: str = "complete") -> None:
        self.backend.pieces, self.backend.ending = pieces, ending

    async def backend_answers(self, *pieces: str) -> None:
        self._set(pieces)

    async def backend_echoes(self) -> None:
        self._set(None)

    async def backend_trickles(self) -> None:
        self.backend.trickles = True

    async def backend_fails(self) -> None:
        self._set(("so far",), "fail")

    async def backend_refuses(self) -> None:
        self.backend.status = 409

    async def backend_answers_status(self, status: int) -> None:
        self.backend.status = status

    async def backend_disappears(self) -> None:
        self._set((), "gone")

    async def backend_breaks_off(self, *pieces: str) -> None:
        self._set(pieces, "cut")

    async def backend_stalls(self, *pieces: str) -> None:
        self._set(pieces, "stall")

    async def backend_asks(self, question: str) -> None:
        self.backend.question = question

    async def backend_waits(self) -> bool:
        return bool(self.backend.waiting)

    async def backend_goes_on(self, *pieces: str) -> None:
        self._set((*(self.backend.pieces or ()), *pieces))

    async def backend_is_released(self) -> None:
        await self.backend.released.wait()

    async def backend_runs_tool(self, name: str, arguments: dict[str, Any], output: str) -> None:
        self.backend.tool = (name, json.dumps(arguments), output)

    async def backend_received(self) -> list[list[tuple[str, str]]]:
        return self.backend.received

    async def backend_calls(self, *rounds: Sequence[tuple[str, dict[str, Any]]]) -> None:
        self.backend.rounds = rounds

    async def backend_offered(self) -> list[list[ToolDeclaration]]:
        return self.backend.offered

    async def backend_outputs(self) -> list[list[tuple[str, str]]]:
        return self.backend.outputs


class TestRightWithTheHistoryAtTheGateway(Drives):
    pass


class TestRightWithARotatingHandle(Drives):
    owner = ROTATING


class TestRightWithAStaticHandle(Drives):
    owner = STATIC


class TestRightWithResponsesThatGoOn(Drives):
    owner = ROTATING

    @pytest.fixture
    def adapter(self) -> Right:
        self.backend = Backend()
        return Continues(self.backend, self.owner)


class TestRightWithRunsThatGoOn(TestRightWithResponsesThatGoOn):
    owner = STATIC


# --- wrong adapters ---------------------------------------------------------------------------------------------------

TESTS = frozenset(name for name in dir(AdapterSuite) if name.startswith("test_"))

OWNERSHIP = "test_ownership_is_declared_without_network_and_stays_the_same"
DECLARED = "test_the_adapter_keeps_conversations_in_a_way_that_its_factory_declares"
PLAIN = "test_a_plain_message_ends_with_exactly_one_completed_call_as_the_last_event"
SECOND = "test_the_second_call_sends_its_items_and_nothing_else"
CLOSING = "test_closing_in_the_middle_of_an_answer_releases_the_connection"
CANCELLING = "test_cancelling_while_waiting_releases_the_connection"
FAILING = "test_a_failing_backend_is_an_adapter_error_with_a_class_and_a_detail"
FAILED = "test_a_failing_backend_may_have_processed_the_request"
REFUSED = "test_a_refused_request_was_not_processed"
STATUS = "test_an_http_error_has_the_class_of_its_status"
CUT = "test_an_answer_without_its_end_is_an_error_and_never_completed"
TOOL_ORDER = "test_a_tool_call_is_announced_then_ready_then_answered"
TOOL_ID = "test_a_tool_call_keeps_its_id_and_its_name"

WRONG: list[tuple[type[Right], Ownership, set[str]]] = [
    (broken.OwnershipAsksTheNetwork, GATEWAY, {OWNERSHIP}),
    (broken.OwnershipChanges, GATEWAY, {OWNERSHIP}),
    (broken.IsNotWhatItsFactoryDeclares, GATEWAY, {DECLARED}),
    (broken.CompletesTwice, GATEWAY, {PLAIN}),
    (broken.GoesOnAfterTheEnd, GATEWAY, {PLAIN}),
    (broken.NeverCompletes, GATEWAY, {PLAIN}),
    (broken.NeverStarts, GATEWAY, {"test_a_call_begins_with_call_started"}),
    (broken.RepeatsText, GATEWAY, {"test_the_text_deltas_join_to_the_answer"}),
    (broken.FillsEmptyAnswers, GATEWAY, {"test_an_empty_answer_completes_too"}),
    (broken.GivesForeignEvents, GATEWAY, {"test_all_events_are_those_of_the_port"}),
    (broken.CountsToNaN, GATEWAY, {"test_all_that_events_carry_is_json"}),
    (broken.SplitsLines, GATEWAY, {"test_any_text_comes_through_unchanged"}),
    (broken.DecodesEachChunk, GATEWAY, {"test_an_answer_that_comes_byte_by_byte_is_the_same"}),
    (broken.ChangesItsRequest, GATEWAY, {"test_a_request_is_not_changed"}),
    (broken.ForgetsTheHandle, ROTATING, {"test_a_backend_that_owns_the_conversation_confirms_a_handle"}),
    (broken.TakesAnyIdForAHandle, GATEWAY, {"test_with_the_history_at_the_gateway_no_handle_is_confirmed"}),
    (broken.TakesAnyIdForAHandle, STATIC, {"test_a_static_handle_stays_the_same"}),
    (broken.KeepsItsHandleToItself, STATIC, {"test_a_static_handle_is_pending_before_it_is_confirmed"}),
    (broken.ChangesItsPendingHandle, ROTATING, {"test_a_pending_handle_is_never_reported_twice_differently"}),
    (broken.SendsTheLastMessageOnly, GATEWAY, {SECOND}),
    (broken.ForgetsItsAnswers, GATEWAY, {SECOND}),
    (broken.TakesAllForTheUsersWords, GATEWAY, {SECOND}),
    (broken.SendsEverythingAgain, ROTATING, {SECOND}),
    (broken.KeepsTheConnection, GATEWAY, {CLOSING, CANCELLING}),
    (broken.SwallowsCancelling, GATEWAY, {CANCELLING}),
    (broken.StaysBusy, GATEWAY, {"test_after_a_closed_call_the_next_one_works"}),
    (broken.MixesCalls, GATEWAY, {"test_two_calls_at_once_do_not_mix"}),
    (broken.ClosesOnce, GATEWAY, {"test_closing_the_adapter_twice_does_no_harm"}),
    (broken.LetsForeignErrorsOut, GATEWAY, {FAILING}),
    (broken.FailsWithoutAWord, GATEWAY, {FAILING}),
    (broken.TakesAFailureForARefusal, GATEWAY, {FAILED}),
    (broken.TakesACutForARefusal, GATEWAY, {CUT}),
    (broken.TakesEveryStatusForAFailure, GATEWAY, {REFUSED, STATUS}),
    (broken.TakesEveryStatusForARefusal, GATEWAY, {STATUS}),
    (broken.TellsTheKey, GATEWAY, {"test_the_api_key_is_in_no_error"}),
    (broken.DoesNotKnowWhy, GATEWAY, {"test_a_backend_that_is_gone_is_unreachable"}),
    (broken.TellsTheKeyOfACutAnswer, GATEWAY, {CUT}),
    (broken.TakesACutForTheEnd, GATEWAY, {CUT}),
    (broken.AnswersBeforeTheCall, GATEWAY, {TOOL_ORDER}),
    (broken.LeavesToolsToTheGateway, GATEWAY, {TOOL_ORDER}),
    (broken.RenamesToolCalls, GATEWAY, {TOOL_ID}),
    (broken.LosesArguments, GATEWAY, {TOOL_ID}),
    *((kind, STATIC, fails) for kind, fails in broken_run_adapters.OF_STATIC),
    *((kind, owner, fails) for kind, fails in broken_run_adapters.OF_BOTH for owner in (ROTATING, STATIC)),
    *((kind, owner, fails) for kind, fails in broken_tool_adapters.WRONG for owner in (GATEWAY, ROTATING)),
]


async def verdict(test: str, suite: AdapterSuite, adapter: Adapter) -> str:
    """The outcome of a test of the suite for an adapter: passed, skipped, or failed."""
    method = getattr(suite, test)
    with pytest.MonkeyPatch.context() as monkeypatch:
        given = {"adapter": adapter, "monkeypatch": monkeypatch}
        try:
            await method(**{name: given[name] for name in inspect.signature(method).parameters})
        except pytest.skip.Exception as skip:
            return f"skipped: {skip}"
        except Exception:  # noqa: BLE001  # whatever a test raises, it has failed
            return "failed"
    return "passed"


@pytest.mark.parametrize(("kind", "owner", "fails"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_wrong_adapter_fails_where_it_is_wrong(
    kind: type[Right], owner: Ownership, fails: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = 0.01 if kind is broken.KeepsTheConnection else checks.BOUND
    right = Continues if issubclass(kind, Continues) else Right
    for made, wanted, wait in ((kind, "failed", bound), (right, "passed", checks.BOUND)):
        monkeypatch.setattr(checks, "BOUND", wait)
        for test in sorted(fails):
            suite = Drives()
            suite.backend = Backend()
            assert (made, test, await verdict(test, suite, made(suite.backend, owner))) == (made, test, wanted)


def test_every_test_of_the_suite_is_failed_by_some_wrong_adapter() -> None:
    assert {test for _, _, fails in WRONG for test in fails} == TESTS


# --- hooks that are not given -----------------------------------------------------------------------------------------


class DrivesLittle(AdapterSuite):
    async def backend_answers(self, *pieces: str) -> None:
        self.backend.pieces = pieces

    backend: Backend


@pytest.mark.parametrize("test", sorted(TESTS))
async def test_what_a_test_cannot_do_without_a_hook_is_skipped_with_the_name_of_the_hook(test: str) -> None:
    suite = DrivesLittle()
    suite.backend = Backend()
    outcome = await verdict(test, suite, Right(suite.backend, STATIC))
    assert outcome == "passed" or re.fullmatch(
        r"skipped: give your test class `(factory|secret|backend_\w+)` and this is tested|skipped: the storage owner is backend"
        r"|skipped: the adapter has no Can\w+( or Can\w+)*",
        outcome,
    )


async def test_the_required_hooks_are_asked_for_by_name() -> None:
    with pytest.raises(NotImplementedError, match="backend_answers"):
        await AdapterSuite().backend_answers()
    with pytest.raises(NotImplementedError, match="adapter"):
        AdapterSuite.__dict__["adapter"]._get_wrapped_function()(AdapterSuite())
