"""A database file that is taken away under its process."""

from pathlib import Path

from storage.write.open_file import OpenFile


def test_it_is_looked_for_once_in_a_period(tmp_path: Path) -> None:
    path, now = tmp_path / "a.db", [0.0]
    path.touch()
    file = OpenFile(str(path), lambda: now[0])
    path.unlink()
    assert (file.gone(), file.gone_now()) == (False, True)
    now[0] = 1.0
    assert file.gone()
    path.touch()
    assert file.gone()
