"""Every fault that the gateway has to survive, by its row, and the tests of it. Law: a row has a test in `tests/faults` that is
marked with it, or names an existing test of another folder; `test_catalogue.py` checks both directions.

A test is marked with `@pytest.mark.fault("B6")`, a whole module with `pytestmark`. Source: docs/state-model.md, section 14.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """`tests` are those of other folders, by the name of their function, which is the same in the tests of each store."""

    title: str
    tests: tuple[str, ...] = ()


CATALOGUE: dict[str, Fault] = {
    # --- the process dies ---
    "K1": Fault("killed before the message is committed"),
    "K2": Fault(
        "killed behind the commit, before the answer",
        ("test_45_a_task_id_is_told_after_the_commit",),
    ),
    "K3": Fault("killed behind the answer, before the backend is called"),
    "K4": Fault(
        "killed when the request is sent and no byte is back",
        ("test_51_a_crash_is_as_good_as_a_stream_that_was_cut",),
    ),
    "K5": Fault("killed in mid-stream"),
    "K6": Fault("killed when a tool call has come and its tool has not begun"),
    "K7": Fault(
        "killed while a tool runs, or before its result is stored",
        ("test_50_a_tool_that_acted_before_a_crash_is_not_run_again_and_the_model_is_told",),
    ),
    "K8": Fault(
        "killed when a result is stored and not sent",
        ("test_49_an_outcome_is_stored_at_once_and_outlives_a_crash",),
    ),
    "K9": Fault(
        "killed when the backend has finished and its end is not committed",
        (
            "test_51_with_per_turn_the_turn_of_a_process_that_died_has_not_been",
            "test_51_what_is_adopted_becomes_history_of_the_turn_that_failed",
        ),
    ),
    "K10": Fault("killed when the end is committed and neither shown nor posted"),
    "K11": Fault(
        "killed when a notification is posted and not recorded",
        ("test_a_delivery_whose_process_died_after_the_post_is_made_again_when_the_claim_ends",),
    ),
    "K12": Fault(
        "killed while it recovers, again and again",
        (
            "test_dying_while_recovering_loses_nothing",
            "test_a_log_that_cannot_be_read_stops_neither_the_start_nor_the_other_tasks",
            "test_109d_a_turn_that_cannot_be_ended_is_put_aside_behind_the_last_try_and_all_others_end",
        ),
    ),
    "K13": Fault("SIGTERM with many streams, and a second one"),
    "K14": Fault(
        "stopped, overtaken by another process, and continued",
        ("test_135_a_holder_that_comes_back_to_life_in_time_keeps_its_thread",),
    ),
    # --- the backend fails ---
    "B1": Fault(
        "refused, a name that nobody knows, no TLS; again and again",
        (
            "test_no_such_host",
            "test_no_tls_where_tls_is_expected",
            "test_108_after_the_third_try_the_turn_fails_for_the_last_reason",
            "test_one_turn_tries_for_all_others_and_its_answer_lets_them_through",
        ),
    ),
    "B2": Fault("a reset before the head of the answer, a kept connection that is gone"),
    "B3": Fault(
        "a reset or an end in mid-stream, no last event",
        ("test_105_a_stream_that_just_ends_is_a_failure",),
    ),
    "B4": Fault("silence before the answer and in it"),
    "B5": Fault(
        "429 with a time to wait, and an empty quota",
        ("test_109_the_time_that_the_backend_names_is_waited_for_within_bounds",),
    ),
    "B6": Fault("5xx, pages, redirects"),
    "B7": Fault("what is no JSON, or of the wrong types"),
    "B8": Fault("the same stream, cut and written in other ways"),
    "B9": Fault(
        "events that come twice, out of order, unknown or too late",
        (
            "test_events_with_the_number_of_an_earlier_one_are_repeats_but_numbers_may_have_gaps_or_all_be_zero",
            "test_a_whole_text_that_differs_takes_the_place_of_what_was_shown",
            "test_a_response_without_id_confirms_nothing",
        ),
    ),
    "B10": Fault("an answer of any size and depth"),
    "B11": Fault(
        "a lost or expired chain",
        (
            "test_41_a_lost_handle_is_an_error_now_and_later_and_never_a_fresh_start",
            "test_41_a_rebuild_that_fails_is_tried_again_whole_by_the_next_turn",
        ),
    ),
    "B12": Fault(
        "a conversation that is locked or deleted",
        ("test_109_a_locked_conversation_is_tried_after_1_2_and_4_seconds",),
    ),
    "B13": Fault(
        "incomplete, filtered, refused, failed",
        (
            "test_an_incomplete_answer_can_be_continued_and_has_the_reason",
            "test_an_incomplete_answer_has_the_reason",
            "test_an_answer_that_is_not_whole_says_why",
        ),
    ),
    "B14": Fault(
        "tool calls with bad arguments, unknown names, empty or repeated ids, without end",
        (
            "test_84_arguments_that_are_no_object_are_kept_and_told_as_a_failure",
            "test_75_an_unknown_tool_is_told_to_the_model_and_its_siblings_run",
            "test_83_calls_without_an_id_are_known_by_one_of_ours_on_both_sides",
            "test_82_an_external_id_that_comes_again_in_another_response_is_another_call",
            "test_79_at_the_limit_of_rounds_one_last_call_goes_without_tools",
        ),
    ),
    "B15": Fault(
        "done at the backend, and answered with 500",
        ("test_51_a_call_of_unknown_outcome_is_found_in_the_conversation",),
    ),
    # --- the database fails ---
    "D1": Fault(
        "locked for longer than anybody waits",
        (
            "test_events_of_a_running_turn_wait_for_a_lock_that_makes_a_new_message_fail",
            "test_a_locked_database_is_unavailable_after_the_timeout_for_all_that_wait",
        ),
    ),
    "D2": Fault("the disk is full", ("test_a_file_that_may_not_grow_is_full",)),
    "D3": Fault(
        "read-only, or failing",
        (
            "test_one_that_may_only_be_read_is_read_only",
            "test_a_database_that_fails_acknowledges_nothing_that_it_does_not_keep",
        ),
    ),
    "D4": Fault(
        "PostgreSQL that is stopped again and again",
        (
            "test_a_server_that_crashes_again_and_again_keeps_what_was_acknowledged_and_nothing_else",
            "test_points_of_a_running_turn_wait_for_a_server_that_restarts",
        ),
    ),
    "D5": Fault(
        "PostgreSQL behind a black hole, or cut off",
        (
            "test_a_commit_whose_answer_is_lost_is_stored_once_and_acknowledged",
            "test_a_group_in_doubt_waits_until_the_server_can_say",
            "test_a_connection_that_has_fallen_silent_is_replaced",
            "test_whoever_waits_for_a_silent_server_waits_once_and_who_comes_later_is_refused_at_once",
        ),
    ),
    "D6": Fault(
        "all connections of PostgreSQL are taken",
        ("test_a_gateway_whose_connections_others_have_taken_refuses_and_comes_back_by_itself",),
    ),
    "D7": Fault(
        "failover to a standby that has all that was acknowledged, or lags behind it",
        (
            "test_each_acknowledged_group_is_there_when_the_standby_takes_over",
            "test_a_server_that_lacks_what_it_confirmed_is_neither_written_to_nor_read",
        ),
    ),
    "D8": Fault(
        "a corrupt row, a schema of the future",
        (
            "test_a_newer_schema_is_refused_and_not_changed",
            "test_130_a_list_tells_of_a_task_that_cannot_be_read_and_of_all_the_others",
        ),
    ),
    # --- time, callers, receivers ---
    "T1": Fault("the clock jumps"),
    "C1": Fault(
        "callers that leave, fall silent, or read too slowly",
        (
            "test_a_reader_that_stops_reading_loses_its_stream",
            "test_a_reader_that_does_not_read_comments_loses_its_stream",
        ),
    ),
    "C2": Fault(
        "eight callers with one idempotency key at once",
        ("test_eight_at_once_with_one_key_get_one_task",),
    ),
    "C3": Fault(
        "a second message while the first one is answered, by policy",
        (
            "test_133_beyond_the_bound_a_message_is_refused",
            "test_133_interrupt_cancels_what_runs_and_then_runs",
            "test_133_reject_refuses_while_another_process_is_at_work",
            "test_133_rollback_cancels_what_runs_and_the_next_call_knows_nothing_of_it",
            "test_133_rollback_of_many_that_come_at_once_leaves_those_that_were_completed",
        ),
    ),
    "W1": Fault(
        "receivers that are down, slow, refuse, redirect, say too much or nothing",
        (
            "test_a_redirect_is_a_failure_and_is_not_followed",
            "test_a_huge_answer_is_not_read_to_its_end",
            "test_a_server_without_tls_is_a_failure_of_https",
            "test_a_receiver_that_is_gone_is_not_asked_again",
        ),
    ),
    # --- the code of the operator ---
    "P1": Fault("a Python agent or tool that exits, is interrupted, or cancels itself"),
    "P2": Fault("a Python agent or tool that blocks its event loop"),
    "P3": Fault("the process of a Python agent or tool that dies"),
    "P4": Fault("a Python agent or tool that forks its process"),
    # --- several processes ---
    "R1": Fault("two processes write one context"),
    "R2": Fault(
        "a new version among old ones, and back",
        (
            "test_128_an_older_process_does_not_overwrite_what_a_newer_one_left_meanwhile",
            "test_of_several_that_start_at_once_one_migrates",
            "test_an_older_schema_is_refused_when_it_may_not_be_migrated",
            "test_128_a_newer_state_is_refused_untouched",
        ),
    ),
}

NOT_BUILT: dict[str, str] = {
    "M1": "Redis that is killed: there is no bus beside the ledger",
}
"""Rows about what does not exist yet, and why. What brings it takes them out of here."""
