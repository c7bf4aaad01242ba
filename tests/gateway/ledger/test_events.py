"""The events of the log as they are written."""

from hypothesis import example, given
from hypothesis import strategies as some

from gateway.a2a.model import Artifact, Part, TaskArtifactUpdateEvent
from gateway.ledger.events import entry, text_entries

_TEXT = some.text(some.characters(exclude_categories=["Cs"]))


@given(some.tuples(_TEXT, _TEXT, _TEXT), _TEXT)
@example(('"text":""', '","text":"', "\\"), '"text":""')
@example(("t", "c", "a"), "\u2028\u2029\x85\x00")
def test_a_text_that_an_artifact_grows_by_is_written_as_any_update_is(ids: tuple[str, str, str], text: str) -> None:
    task_id, context_id, artifact_id = ids
    artifact = Artifact(artifact_id=artifact_id, parts=(Part(text=text),))
    update = TaskArtifactUpdateEvent(task_id=task_id, context_id=context_id, artifact=artifact, append=True)
    assert text_entries(task_id, context_id, artifact_id)(text) == entry(update)
