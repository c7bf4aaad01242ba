"""A file that is being made beside the place where it belongs."""

from pathlib import Path

import pytest

from storage.schema.backup import draft


@pytest.mark.parametrize("kept", [True, False])
def test_a_draft_leaves_its_target_where_it_is_kept_and_else_nothing(tmp_path: Path, kept: bool) -> None:
    target = tmp_path / "whole"
    with draft(target) as copied:
        copied.path.write_text("content")
        if kept:
            copied.keep()
    assert list(tmp_path.iterdir()) == [target] * kept


@pytest.mark.parametrize("source", [(), ("source", None)])
def test_an_error_about_a_draft_names_its_target_because_nobody_knows_the_folder(
    tmp_path: Path, source: tuple[str | None, ...]
) -> None:
    target = tmp_path / "whole"
    with pytest.raises(OSError, match="no room") as raised, draft(target) as copied:
        raise OSError(28, "no room", *source, copied.path)
    assert (raised.value.filename2 if source else raised.value.filename) == str(target)
