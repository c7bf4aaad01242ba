"""Which recording answers a request, and what is said where none does."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.ports.adapter import ErrorClass
from gateway.ports.wire import End, ReplayMissing, Request
from gateway.recording.player import Replay
from tests.gateway.recording.support import at, body_of, post, record, replay

ONE, TWO = b"data: 1\n\n", b"data: 2\n\n"
OLD, NEW = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


def test_a_request_is_answered_as_it_was(tmp_path: Path) -> None:
    record(tmp_path, (post('{"a": 1, "b": [2]}'), ONE))
    [answer] = replay(tmp_path, post('{"b":[2],"a":1}', url="https://another.example/v1/responses"))
    assert (answer.status, answer.headers, answer.how) == (200, {"content-type": "text/event-stream"}, End.COMPLETE)
    assert body_of(answer) == ONE


def test_equal_requests_are_answered_in_their_order_and_no_more_often(tmp_path: Path) -> None:
    with at():
        record(tmp_path, (post(), ONE), (post(), TWO))
        player = Replay(tmp_path, 0).tap("support")
        assert [body_of(player.answer(post())) for _ in range(2)] == [ONE, TWO]
        with pytest.raises(ReplayMissing, match="has answered an equal request already"):
            player.answer(post())


def test_a_get_that_is_repeated_gets_the_last_answer_again(tmp_path: Path) -> None:
    look = Request("GET", "https://a.example/tasks/1", {})
    with at():
        record(tmp_path, (look, ONE), (look, TWO))
        assert [body_of(answer) for answer in replay(tmp_path, look, look, look)] == [ONE, TWO, TWO]


def test_what_belongs_to_no_conversation_may_be_asked_again(tmp_path: Path) -> None:
    record(tmp_path, (post(), ONE))
    assert [body_of(answer) for answer in replay(tmp_path, post(), post())] == [ONE, ONE]


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (post('{"input": [{"content": "Hallo"}], "model": "m"}'), r"0001\.yaml, differs at \$\.input\[0\]\.content"),
        (post('{"input": [{"content": "Hello"}], "model": "m", "x": 1}'), r"0001\.yaml, differs at \$\.x"),
        (post('{"input": [{"content": "Hello"}]}'), r"0001\.yaml, differs at \$\.model"),
        (post('{"input": [{"content": "Hello"}, {}], "model": "m"}'), r"0001\.yaml, differs at \$\.input\[1\]"),
        (post("{}", url="https://api.example.com/v1/models"), r"is of another address"),
    ],
)
def test_a_request_that_was_never_recorded_is_told_where_it_differs(
    tmp_path: Path, request_: Request, says: str
) -> None:
    with at():
        record(tmp_path, (post('{"input": [{"content": "Hello"}], "model": "m"}'), ONE))
        with pytest.raises(ReplayMissing, match=says) as caught:
            replay(tmp_path, request_)
    assert caught.value.kind is ErrorClass.REPLAY_MISSING


def test_the_difference_is_a_file(tmp_path: Path) -> None:
    record(tmp_path, (post('{"input": "Hello", "model": "m"}'), ONE))
    with pytest.raises(ReplayMissing):
        replay(tmp_path, post('{"input": "Hallo", "model": "m"}'))
    [diff] = (tmp_path / "unmatched").iterdir()
    lines = diff.read_text().splitlines()
    assert diff.stat().st_mode & 0o777 == 0o600
    assert [line for line in lines if line[0] in "+-"][2:] == ['-    "input": "Hello"', '+    "input": "Hallo"']


def test_a_request_without_an_answer_counts_where_its_difference_cannot_be_written(tmp_path: Path) -> None:
    record(tmp_path, (post('{"input": "Hello", "model": "m"}'), ONE))
    (tmp_path / "unmatched").write_text("no folder")
    replay = Replay(tmp_path, 0)
    with capture_logs() as logs, pytest.raises(ReplayMissing, match="was never recorded"):
        replay.tap("support").answer(post('{"input": "Hallo", "model": "m"}'))
    assert [(each["event"], each["diff"]) for each in logs] == [("replay.missing", "not written: File exists")]
    assert len(replay.missing) == 1


def test_a_file_that_the_disk_had_no_room_for_is_left_out(tmp_path: Path) -> None:
    record(tmp_path, (post(), ONE))
    [file] = tmp_path.rglob("0001.yaml")
    file.with_name("0002.yaml").write_text("")
    with capture_logs() as logs:
        Replay(tmp_path, 0).tap("support").answer(post())
    assert [each["reason"] for each in logs if each["event"] == "recording.unreadable"] == [
        f"{file.with_name('0002.yaml').relative_to(tmp_path)} is no recording that can be read: it is empty"
    ]


def test_an_agent_is_not_answered_by_the_recordings_of_another(tmp_path: Path) -> None:
    record(tmp_path, (post(), ONE))
    with pytest.raises(ReplayMissing, match="Nothing of 'another' is recorded"):
        Replay(tmp_path, 0).tap("another").answer(post())


def test_ids_that_are_made_anew_may_be_others_and_the_answer_has_them(tmp_path: Path) -> None:
    def thread(name: str) -> Request:
        return Request("POST", f"https://a.example/threads/{name}/runs", {}, f'{{"id": "{name}"}}'.encode())

    made = f'data: {{"thread":"{OLD}"}}\n\n'.encode()
    record(tmp_path, (thread(OLD), made), (post(f'{{"again": "{OLD}"}}'), made))
    first, second = replay(tmp_path, thread(NEW), post(f'{{"again": "{NEW}"}}'))
    assert body_of(first) == body_of(second) == made.replace(OLD.encode(), NEW.encode())


def test_of_equal_requests_the_one_of_the_same_thread_answers(tmp_path: Path) -> None:
    other = "33333333-3333-4333-8333-333333333333"

    def said(name: str, text: str) -> Request:
        return post(f'{{"thread": "{name}", "text": "{text}"}}')

    record(
        tmp_path, (said(OLD, "a"), ONE), (said(other, "b"), ONE), (said(other, "more"), TWO), (said(OLD, "more"), ONE)
    )
    answers = replay(tmp_path, said(NEW, "a"), said(other, "b"), said(NEW, "more"), said(other, "more"))
    assert [body_of(answer) for answer in answers] == [ONE, ONE, ONE, TWO]


def test_a_request_that_was_made_again_with_other_credentials_is_passed_over(tmp_path: Path) -> None:
    record(tmp_path, (post(), b""), how=End.CANCELLED, headers={})
    file = tmp_path / "support" / "outside" / "0001.yaml"
    file.write_text(file.read_text().replace("status: 200", "status: 401"))
    record(tmp_path, (post(), ONE))
    assert [body_of(answer) for answer in replay(tmp_path, post())] == [ONE]


@pytest.mark.parametrize(("speed", "at_"), [(0, 0.0), (1, 0.001), (10, 0.0001)])
def test_time_passes_as_fast_as_is_wanted(tmp_path: Path, speed: int, at_: float) -> None:
    record(tmp_path, (post(), ONE))
    [answer] = replay(tmp_path, post(), speed=speed)
    assert answer.reads == ((at_, ONE),)


def test_what_nobody_has_asked_for_is_known(tmp_path: Path) -> None:
    with at():
        record(
            tmp_path, (post('{"a": 1}'), ONE), (post('{"a": 2}'), ONE), (Request("GET", "https://a.example", {}), ONE)
        )
        player = Replay(tmp_path, 0)
        player.tap("support").answer(post('{"a": 1}'))
    assert player.unused == ("support/c01/0002.yaml",)
    assert player.missing == []


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no recordings"):
        Replay(tmp_path, 0)
