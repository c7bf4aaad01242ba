"""The part of the conformance suite on contexts, handles and places as operators see them. Law: it knows no store."""

from msgspec.structs import replace

from gateway.a2a.model import TaskState
from gateway.ledger.admin.contexts import (
    Approval,
    ContextFilter,
    ListedContext,
    Place,
    PlaceKind,
    Places,
    QueuedDeletion,
    Standing,
    StepKey,
)
from gateway.ledger.api_keys import ApiKey, IssueKey, digest_of
from gateway.ledger.calls import NewItem, NewToolCall
from gateway.ledger.documents import Adopt
from gateway.ledger.port import Ledger
from gateway.ledger.retention import DeleteContext
from gateway.ledger.states import ServiceCallStatus, ToolCallStatus, TurnStatus
from gateway.ledger.threads import BeginEpoch, Caller, DeleteOrphan, MarkHandleLost
from gateway.ledger.turns import Accept, Decide, GivenAnswer, Suspend, Verdict
from gateway.ports.conversation import CallItem, HandleKind, StorageOwner
from gateway.testing.checks import require, same
from gateway.testing.ledger_points import (
    ACCEPT,
    ADA,
    APPEND,
    COMPLETE,
    FAIL,
    FINISH,
    FIRST_TURN,
    FOLLOW_UP,
    OTHER_THREAD,
    PREPARE,
    THREAD,
    says,
)

_ALL = ContextFilter()
_SAID = replace(FINISH, artifacts=b'[{"artifact":{"artifactId":"a","parts":[{"text":"Filed under Cheese"}]}}]')
_SECOND_CALL = replace(
    PREPARE, turn="turn-2", task="task-2", service_call="call-2", generation=2, handle_in="resp-1", event=None, now=2100
)


def _context(number: int, tenant: str = "acme", principal: str = "ada", text: str = "hi") -> Accept:
    """A context of its own; the higher the number, the later."""
    name = f"{number:03}"
    return replace(
        ACCEPT,
        caller=Caller(principal, tenant),
        now=number,
        context_row=f"context-{name}",
        context_public=f"public-{name}",
        thread=replace(THREAD, id=f"thread-{name}", context=f"context-{name}"),
        task=f"task-{name}",
        turn=f"turn-{name}",
        message=says(text),
        key=None,
        event=None,
    )


async def _listed(ledger: Ledger, where: ContextFilter = _ALL, tenant: str = "acme") -> list[str]:
    return [each.public_id for each in (await ledger.admin.contexts(tenant, where)).contexts]


async def _by_standing(ledger: Ledger) -> dict[Standing, list[str]]:
    """What each list holds that is filtered by how contexts stand, where it holds any. Each tells of a context what it is
    filtered by."""
    found = {}
    for standing in Standing:
        listed = (await ledger.admin.contexts("acme", ContextFilter(standing=standing))).contexts
        same({each.standing for each in listed} - {standing}, set())
        if listed:
            found[standing] = [each.public_id for each in listed]
    return found


async def _only(ledger: Ledger) -> ListedContext:
    [listed] = (await ledger.admin.contexts("acme", _ALL)).contexts
    return listed


class AdminContextTests:
    """A part of `LedgerSuite`."""

    # --- lists

    async def test_operators_see_the_contexts_of_all_principals_of_their_tenant_and_no_other(
        self, ledger: Ledger
    ) -> None:
        await ledger.commit(_context(1), _context(2, principal="eve"), _context(3, tenant="other"))
        same(await _listed(ledger), ["public-002", "public-001"])
        same(await _listed(ledger, tenant="other"), ["public-003"])
        same(await _listed(ledger, tenant=""), [])

    async def test_a_context_is_listed_with_its_threads_and_its_latest_turn_in_words(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)
        await ledger.commit(replace(FOLLOW_UP, new_task=True, task="task-2", event=None))
        listed = await _only(ledger)
        same((listed.id, listed.public_id, listed.principal), ("context-1", "public-1", "ada"))
        same((listed.state, listed.standing, listed.last_used_at), ("open", Standing.WORKING, 2000))
        [thread] = listed.threads
        same((thread.agent, thread.owner, thread.epoch, thread.turns), ("echo", StorageOwner.BACKEND, 1, 2))
        require(listed.turn is not None, "the latest turn is missing")
        if listed.turn is not None:
            same((listed.turn.id, listed.turn.task, listed.turn.status), ("turn-2", "task-2", TurnStatus.ACCEPTED))
            same((listed.turn.number, listed.turn.words), (2, "more"))

    async def test_the_latest_turn_is_that_of_any_agent(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, OTHER_THREAD, _context(500))
        same(await _listed(ledger), ["public-1", "public-500"])
        listed = (await ledger.admin.contexts("acme", _ALL)).contexts[0]
        same((listed.turn and listed.turn.agent, len(listed.threads)), ("other", 2))

    async def test_pages_follow_each_other_without_gap_or_overlap(self, ledger: Ledger) -> None:
        await ledger.commit(*[_context(number) for number in range(5)])
        found, before = [], None
        while True:
            page = await ledger.admin.contexts("acme", _ALL, before, limit=2)
            found.append([each.public_id for each in page.contexts])
            before = page.before
            if before is None:
                break
        same(found, [["public-004", "public-003"], ["public-002", "public-001"], ["public-000"]])

    async def test_lists_are_filtered_by_agent_principal_and_time(self, ledger: Ledger) -> None:
        await ledger.commit(_context(1), _context(2, principal="eve"), ACCEPT, OTHER_THREAD)
        same(await _listed(ledger, ContextFilter(agent="other")), ["public-1"])
        same(await _listed(ledger, ContextFilter(principal="eve")), ["public-002"])
        same(await _listed(ledger, ContextFilter(since=2, until=2)), ["public-002"])
        same(await _listed(ledger, ContextFilter(agent="none")), [])

    async def test_lists_are_filtered_by_the_worst_that_is_to_be_said_of_a_context(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN, _context(2))
        lost = (replace(FOLLOW_UP, new_task=True, task="task-2", event=None), MarkHandleLost("thread-1", 2))
        same(await _by_standing(ledger), {Standing.IDLE: ["public-1"], Standing.WORKING: ["public-002"]})
        await ledger.commit(lost[1])
        same(await _by_standing(ledger), {Standing.LOST: ["public-1"], Standing.WORKING: ["public-002"]})
        await ledger.commit(lost[0])
        same(await _by_standing(ledger), {Standing.LOST: ["public-1"], Standing.WORKING: ["public-002"]})

    async def test_a_context_whose_latest_turn_has_failed_is_listed_as_failed_and_not_as_idle(
        self, ledger: Ledger
    ) -> None:
        ended = replace(FINISH, status=TurnStatus.FAILED, failure_class="timed-out", state=TaskState.FAILED)
        await ledger.commit(ACCEPT, PREPARE)
        same(await _by_standing(ledger), {Standing.WORKING: ["public-1"]})
        await ledger.commit(replace(FAIL, items=()), APPEND, ended)
        await ledger.commit(_context(900))
        same(await _by_standing(ledger), {Standing.FAILED: ["public-1"], Standing.WORKING: ["public-900"]})
        same(await _listed(ledger, ContextFilter(standing=Standing.FAILED, agent="none")), [])
        await ledger.commit(replace(FOLLOW_UP, new_task=True, task="task-2", event=None))
        same({*await _by_standing(ledger)}, {Standing.WORKING})

    async def test_a_context_that_was_lost_is_not_listed_as_failed(self, ledger: Ledger) -> None:
        ended = replace(FINISH, status=TurnStatus.FAILED, failure_class="handle-expired", state=TaskState.FAILED)
        await ledger.commit(ACCEPT, PREPARE, replace(FAIL, items=()), APPEND, ended, MarkHandleLost("thread-1", 1))
        same(await _by_standing(ledger), {Standing.LOST: ["public-1"]})

    async def test_a_task_whose_turn_has_ended_with_a_question_waits_until_it_is_answered(self, ledger: Ledger) -> None:
        asks = replace(FINISH, state=TaskState.INPUT_REQUIRED)
        await ledger.commit(*FIRST_TURN[:-1], asks, _context(2))
        same(await _by_standing(ledger), {Standing.WAITING: ["public-1"], Standing.WORKING: ["public-002"]})
        [listed] = (await ledger.admin.contexts("acme", ContextFilter(standing=Standing.WAITING))).contexts
        same((listed.turn and listed.turn.id, listed.standing), ("turn-1", Standing.WAITING))
        found = await ledger.admin.overview("acme")
        same(
            [(each.agent, each.status, each.turns) for each in found.question_counts], [("echo", TurnStatus.WAITING, 1)]
        )
        same((await ledger.admin.overview("other")).question_counts, ())
        await ledger.commit(replace(FOLLOW_UP, event=None))
        same(await _by_standing(ledger), {Standing.WORKING: ["public-1", "public-002"]})
        same((await ledger.admin.overview("acme")).question_counts, ())

    async def test_a_question_of_a_context_that_is_over_waits_for_nobody(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN[:-1], replace(FINISH, state=TaskState.AUTH_REQUIRED))
        await ledger.commit(DeleteContext(ADA, "context-1", 3000))
        same(await _by_standing(ledger), {Standing.ENDED: ["public-1"]})
        same((await ledger.admin.overview("acme")).question_counts, ())

    async def test_contexts_that_are_over_are_listed_on_request_alone(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN, _context(2))
        await ledger.commit(DeleteContext(ADA, "context-1", 3000))
        same(await _listed(ledger), ["public-002"])
        same(await _listed(ledger, ContextFilter(standing=Standing.ENDED)), ["public-1"])

    async def test_a_context_without_a_message_is_listed(self, ledger: Ledger) -> None:
        thread = replace(THREAD, id="thread-9", context="context-9", handle="theirs")
        await ledger.commit(Adopt(ADA, "public-9", thread, 500))
        listed = await _only(ledger)
        same((listed.public_id, listed.turn, listed.standing), ("public-9", None, Standing.IDLE))
        found = await ledger.admin.context("acme", "context-9")
        same([(each.handle, each.began_by) for each in found.threads] if found else None, [("theirs", "adopted")])

    # --- texts

    async def test_a_text_is_found_in_what_either_side_said(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN[:-1], _SAID, _context(2, text="More CHEESE, please"), _context(3))
        page = await ledger.admin.contexts("acme", ContextFilter(text="cheese"))
        found = [(each.public_id, each.turn and each.turn.words) for each in page.contexts]
        same(found, [("public-1", "Filed under Cheese"), ("public-002", "More CHEESE, please")])
        same(await _listed(ledger, ContextFilter(text="cheese"), tenant="other"), [])
        same(await _listed(ledger, ContextFilter(text="cheese", principal="eve")), [])

    async def test_a_text_with_signs_is_found_as_it_was_written(self, ledger: Ledger) -> None:
        await ledger.commit(_context(1, text='50% of "a_b"\n\\ é'), _context(2, text="50 of a-b"))
        for text in ('"a_b"', "50%", "\n\\ é", "50% OF"):
            same(await _listed(ledger, ContextFilter(text=text)), ["public-001"])

    async def test_names_of_fields_are_no_text(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)
        same(await _listed(ledger, ContextFilter(text="artifactid")), [])

    async def test_a_search_says_how_far_it_came_and_goes_on_from_there(self, ledger: Ledger) -> None:
        await ledger.commit(_context(1, text="needle"), *[_context(number) for number in range(2, 100)])
        page = await ledger.admin.contexts("acme", ContextFilter(text="needle"), patience=0.0)
        same(page.contexts, ())
        require(page.searched_to is not None and page.before is not None, "it does not say how far it came")
        for _ in range(100):
            if page.contexts or page.before is None:
                break
            page = await ledger.admin.contexts("acme", ContextFilter(text="needle"), page.before, patience=0.0)
        same([each.public_id for each in page.contexts], ["public-001"])
        same((await ledger.admin.contexts("acme", ContextFilter(principal="eve"), patience=0.0)).contexts, ())

    # --- a context and its threads

    async def test_a_context_is_told_with_its_epochs_and_standing_approvals(self, ledger: Ledger) -> None:
        gated = NewToolCall(
            "tool-1", 0, "fc-1", "pay", "{}", "gateway", ToolCallStatus.PENDING_APPROVAL, None,
            asked=True, digest="d", expires_at=5000, server="shop",
        )  # fmt: skip
        called = replace(COMPLETE, items=(NewItem(CallItem("fc-1", "pay", "{}"), None, "tool-1"),), tool_calls=(gated,))
        ask = Suspend("task-1", "turn-1", "thread-1", TaskState.INPUT_REQUIRED, says("may it?"), None, 1300)
        await ledger.commit(ACCEPT, PREPARE, called, ask)
        same((await _only(ledger)).standing, Standing.WAITING)
        verdict = Verdict("tool-1", "d", "approved", "ada", always=True)
        answer = GivenAnswer(says("yes"), 1, "digest-2", None, 3)
        await ledger.commit(
            Decide(ADA, "echo", "context-1", "thread-1", 2, "task-1", "turn-1", answer, (verdict,), None, True, 2000)
        )
        epoch = BeginEpoch(
            "thread-1", 2, "old", StorageOwner.BACKEND, HandleKind.ROTATING, None, "handle-expired", 2500
        )
        await ledger.commit(epoch)
        found = await ledger.admin.context("acme", "context-1")
        require(found is not None, "there is no context")
        if found is not None:
            live, archive = found.threads
            same((live.id, live.epoch, live.archived, live.began_by), ("thread-1", 2, False, "handle-expired"))
            same((live.began_at, live.handle, live.turns), (2500, None, 1))
            same((archive.id, archive.epoch, archive.archived, archive.handle), ("old", 1, True, "resp-1"))
            same(found.approvals, (Approval("tool-1", "pay", "shop", "ada", 2000),))
            same((found.tenant, found.principal, found.cut), ("acme", "ada", False))

    async def test_a_context_of_another_tenant_does_not_exist(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)
        same(await ledger.admin.context("other", "context-1"), None)
        same(await ledger.admin.turns("other", "thread-1"), None)
        same(await ledger.admin.handle_steps("other", "thread-1"), None)
        same(await ledger.admin.continuation("other", "context-1", "echo"), None)
        same(await ledger.admin.locate("other", "task-1"), Places(()))

    async def test_the_turns_of_a_thread_are_told_the_latest_first(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)
        await ledger.commit(replace(FOLLOW_UP, new_task=True, task="task-2", event=None))
        found = await ledger.admin.turns("acme", "thread-1")
        told = (
            [(each.id, each.number, each.task, each.task_state, each.words) for each in found.turns] if found else None
        )
        first = ("turn-1", 1, "task-1", TaskState.COMPLETED, "hi")
        same(told, [("turn-2", 2, "task-2", TaskState.SUBMITTED, "more"), first])
        older = await ledger.admin.turns("acme", "thread-1", 2)
        same([each.number for each in older.turns] if older else None, [1])

    async def test_the_next_message_would_continue_from_the_live_thread(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)
        found = await ledger.admin.continuation("acme", "context-1", "echo")
        same((found and found.turn, found and found.thread), ("turn-1", await ledger.thread("thread-1")))
        same((found and found.owner, found and found.context_id), (ADA, "public-1"))
        same(await ledger.admin.continuation("acme", "context-1", "other"), None)

    # --- handles

    async def test_the_steps_of_a_handle_are_told_with_what_became_of_it(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)
        failed = replace(FAIL, turn="turn-2", service_call="call-2", generation=3, items=())
        await ledger.commit(replace(FOLLOW_UP, new_task=True, task="task-2", event=None), _SECOND_CALL, failed)
        await ledger.commit(DeleteOrphan("thread-1", "echo", "resp-0", 2200))
        found = await ledger.admin.handle_steps("acme", "thread-1")
        require(found is not None, "there is no thread")
        if found is not None:
            second, first = found.steps
            same((second.call, second.status), ("call-2", ServiceCallStatus.FAILED))
            same((second.before, second.after), ("resp-1", None))
            same(second.error_class, "timed-out")
            same((first.before, first.pending, first.after), (None, "resp-1", "resp-1"))
            same((first.turn_status, first.turn_ended_at, first.displaced), (TurnStatus.COMPLETED, 1300, False))
            same((second.deletion_before, found.before, found.thread.handle), (None, None, "resp-1"))

    async def test_a_queued_deletion_is_told_with_the_call_whose_handle_it_is(self, ledger: Ledger) -> None:
        failed = replace(FAIL, items=())
        await ledger.commit(ACCEPT, PREPARE, failed, DeleteOrphan("thread-1", "echo", "resp-0", 1300))
        again = replace(PREPARE, service_call="call-1b", attempt=1, generation=1, handle_in="resp-0", event=None)
        await ledger.commit(again)
        found = await ledger.admin.handle_steps("acme", "thread-1")
        same(found and found.steps[0].deletion_before, QueuedDeletion(1300, 0))

    async def test_pages_of_steps_follow_each_other_with_the_step_ahead(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)
        tries = [
            point
            for attempt in range(150)
            for point in (
                replace(
                    _SECOND_CALL, service_call=f"try-{attempt:03}", attempt=attempt, generation=2 if attempt == 0 else 3
                ),
                replace(FAIL, turn="turn-2", service_call=f"try-{attempt:03}", generation=3, items=()),
            )
        ]
        await ledger.commit(replace(FOLLOW_UP, new_task=True, task="task-2", event=None), *tries)
        page = await ledger.admin.handle_steps("acme", "thread-1")
        same((page and len(page.steps), page and page.before), (100, StepKey(2, 0, 50)))
        rest = await ledger.admin.handle_steps("acme", "thread-1", StepKey(2, 0, 50))
        same((rest and len(rest.steps), rest and rest.before), (51, None))
        same(rest and rest.ahead, page and page.steps[-1])

    # --- places

    async def test_an_id_is_found_wherever_it_is(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)
        key = ApiKey(digest_of("k"), "bot", "a2agw_abcdef", "ada", "acme", admin=True, created_at=1)
        await ledger.commit(IssueKey(key))
        task = Place(PlaceKind.TASK, "task-1", "context-1", "echo", "task-1", principal="ada")
        in_turn = Place(PlaceKind.TURN, "turn-1", "context-1", "echo", "task-1", "turn-1", "ada")
        for wanted, place in (
            ("context-1", Place(PlaceKind.CONTEXT, "context-1", "context-1", principal="ada")),
            ("public-1", Place(PlaceKind.CONTEXT, "context-1", "context-1", principal="ada")),
            ("thread-1", Place(PlaceKind.THREAD, "thread-1", "context-1", "echo", principal="ada")),
            ("task-1", task),
            ("turn-1", in_turn),
            ("m", replace(in_turn, kind=PlaceKind.MESSAGE)),
            ("call-1", replace(in_turn, kind=PlaceKind.CALL, name="call-1")),
            ("tool-1", replace(in_turn, kind=PlaceKind.TOOL_CALL, name="tool-1")),
            ("fc-1", replace(in_turn, kind=PlaceKind.TOOL_CALL, name="tool-1")),
            ("resp-1", replace(in_turn, kind=PlaceKind.HANDLE, name="call-1")),
            ("a2agw_abcdef", Place(PlaceKind.KEY, "bot")),
            ("bot", Place(PlaceKind.KEY, "bot")),
        ):
            same(await ledger.admin.locate("acme", wanted), Places((place,)))
        same(await ledger.admin.locate("acme", "nothing"), Places(()))

    async def test_the_trace_of_a_caller_leads_to_its_turn(self, ledger: Ledger) -> None:
        trace = "0af7651916cd43dd8448eb211c80319c"
        await ledger.commit(replace(ACCEPT, trace=f"00-{trace}-b7ad6b7169203331-01 vendor=1"))
        found = await ledger.admin.locate("acme", trace)
        same([(place.kind, place.turn) for place in found.places], [(PlaceKind.TRACE, "turn-1")])

    async def test_a_handle_of_long_ago_is_looked_for_as_long_as_there_is_time(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN, *[_context(number) for number in range(200, 300)])
        found = await ledger.admin.locate("acme", "resp-1", patience=0.0)
        for _ in range(100):
            if found.places or found.before is None:
                break
            require(found.searched_to is not None, "it does not say how far it came")
            found = await ledger.admin.locate("acme", "resp-1", found.before, patience=0.0)
        same([place.kind for place in found.places], [PlaceKind.HANDLE])
