"""What the kits' reports say, as results of their tests."""

import json
from pathlib import Path

import pytest

from tests.conformance.results import (
    ANY_TRANSPORT,
    Outcome,
    Result,
    Waiver,
    acts_outcomes,
    junit_outcomes,
    read_waivers,
    transport_of,
    waive,
)

_CORE = "tests.compatibility.core_operations"


@pytest.mark.parametrize(
    ("test", "transport"),
    [
        (f"{_CORE}.test_requirements::test_must_requirement[CORE-SEND-001-jsonrpc]", "jsonrpc"),
        (f"{_CORE}.test_requirements::test_must_requirement[HTTP_JSON-ERR-001-grpc]", "grpc"),
        (f"{_CORE}.test_task_lifecycle.TestGetTask::test_get_task_returns_current_state[http_json]", "rest"),
        (f"{_CORE}.test_error_handling.TestVersionErrors::test_unsupported_version_returns_error_rest", "rest"),
        (f"{_CORE}.test_error_handling.TestVersionErrors::test_empty_version_treated_as_default_jsonrpc", "jsonrpc"),
        ("tests.compatibility.jsonrpc.test_error_codes.TestJsonRpcErrorCodeRange::test_error_code[-32001]", "jsonrpc"),
        ("tests.compatibility.http_json.test_http_status.TestHttpJsonStatusCodes::test_success_returns_2xx", "rest"),
        (f"{_CORE}.test_transport_behavior.TestRestFormat::test_response_content_type", "rest"),
        (f"{_CORE}.test_transport_behavior.TestGrpcService::test_grpc_response_validates_against_proto", "grpc"),
        (f"{_CORE}.test_data_model.TestTimestampFormat::test_timestamps_are_iso8601_utc", ANY_TRANSPORT),
        ("tests.compatibility.agent_card.test_agent_card.TestAgentCardDiscovery::test_agent_card", ANY_TRANSPORT),
    ],
)
def test_a_test_is_counted_with_the_transport_that_its_name_says(test: str, transport: str) -> None:
    assert transport_of(test) == transport


def test_every_test_of_a_report_of_pytest_has_one_outcome(tmp_path: Path) -> None:
    report = tmp_path / "must.xml"
    report.write_text(
        "<testsuites><testsuite>"
        "<testcase classname='kit.TestA' name='test_met'/>"
        "<testcase classname='kit.TestA' name='test_unmet'><failure message='no task&#10;at all'>trace</failure></testcase>"
        "<testcase classname='kit.TestA' name='test_broken'><error message='no fixture'/></testcase>"
        "<testcase classname='kit.TestA' name='test_left'><skipped type='pytest.skip' message='no gRPC'/></testcase>"
        "<testcase classname='kit' name='test_should'><skipped type='pytest.xfail' message='no ETag'/></testcase>"
        "</testsuite></testsuites>"
    )
    assert list(junit_outcomes(report)) == [
        ("kit.TestA::test_met", Outcome.PASSED, ""),
        ("kit.TestA::test_unmet", Outcome.FAILED, "no task"),
        ("kit.TestA::test_broken", Outcome.FAILED, "no fixture"),
        ("kit.TestA::test_left", Outcome.SKIPPED, "no gRPC"),
        ("kit::test_should", Outcome.FAILED, "no ETag"),
    ]


def test_every_test_of_a_report_of_acts_has_its_level_and_outcome(tmp_path: Path) -> None:
    report = tmp_path / "acts.json"
    rows = [
        ["PASS", "must", "A-1", "Sends", None],
        ["FAIL", "should", "A-2", "Lists", "$: missing"],
        ["SKIP", "may", "A-3", "Pushes", "none"],
    ]
    report.write_text(json.dumps(rows))
    assert list(acts_outcomes(report)) == [
        ("must", "A-1", Outcome.PASSED, ""),
        ("should", "A-2", Outcome.FAILED, "$: missing"),
        ("may", "A-3", Outcome.SKIPPED, "none"),
    ]


def test_a_waiver_is_a_line_with_its_reason_in_a_file_of_its_kit_and_transport(tmp_path: Path) -> None:
    (tmp_path / "waivers_tck03_rest.txt").write_text("::test_it$  # its client crashes\n")
    (tmp_path / "waivers_tck10.txt").write_text("# faults of the kit\n\ntest_it[CARD-1   # wants a # in the card\n")
    assert list(read_waivers(tmp_path)) == [
        Waiver("tck03", "::test_it$", "its client crashes", "rest"),
        Waiver("tck10", "test_it[CARD-1", "wants a # in the card"),
    ]


@pytest.mark.parametrize(
    ("waived", "test", "is_covered"),
    [
        ("test_get", "push::test_get_config", True),
        ("::test_get$", "push::test_get", True),
        ("::test_get$", "push::test_get_config", False),
    ],
)
def test_a_waiver_names_a_part_of_the_test_or_its_end(waived: str, test: str, is_covered: bool) -> None:
    failed = Result("tck03", "default", "capabilities", "jsonrpc", test, Outcome.FAILED)
    assert Waiver("tck03", waived, "a fault of the kit").covers(failed) is is_covered


def test_only_a_failure_of_its_own_kit_and_transport_is_waived() -> None:
    failed = Result("tck10", "default", "must", "jsonrpc", "a::test_it[CARD-1-jsonrpc]", Outcome.FAILED, "no card")
    others = [
        Result("tck10", "default", "must", "rest", "a::test_it[CARD-1-http_json]", Outcome.PASSED),
        Result("tck10", "default", "must", "jsonrpc", "a::test_it[CARD-2-jsonrpc]", Outcome.FAILED, "no card"),
        Result("acts", "default", "must", "jsonrpc", "a::test_it[CARD-1-jsonrpc]", Outcome.FAILED, "no card"),
        Result("tck10", "default", "must", "grpc", "a::test_it[CARD-1-grpc]", Outcome.FAILED, "no card"),
    ]
    waivers = [Waiver("tck10", "test_it[CARD-1", "a fault of the kit", "jsonrpc")]
    waived = Result("tck10", "default", "must", "jsonrpc", failed.test, Outcome.WAIVED, "a fault of the kit")
    assert list(waive([failed, *others], waivers)) == [waived, *others]
