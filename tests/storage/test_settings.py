"""The settings of SQLite: a URL that names a file, and nothing else."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from storage.settings import SqliteSettings


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("b.db", "must start with sqlite:///"),
        ("sqlite:b.db", "must start with sqlite:///"),
        ("sqlite://b.db", "must start with sqlite:///"),
        ("other:///a", "must start with sqlite:///"),
        ("sqlite:///", "must name a file and nothing else"),
        ("sqlite:///:memory:", "must name a file and nothing else"),
        ("sqlite:///./:memory:", "must name a file and nothing else"),
        ("sqlite:///a?mode=ro", "must name a file and nothing else"),
    ],
)
def test_a_url_of_no_file_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        SqliteSettings(url=url)


def test_another_key_is_refused() -> None:
    with pytest.raises(ValidationError, match="pool"):
        SqliteSettings.model_validate({"url": "sqlite:///a", "pool": 5})


@pytest.mark.parametrize(
    ("url", "path"),
    [("sqlite:///a/b.db", "a/b.db"), ("sqlite:///./b.db", "b.db"), ("sqlite:////a/b c%20@.db", "/a/b c%20@.db")],
)
def test_a_url_names_a_file(url: str, path: str) -> None:
    assert SqliteSettings(url=url).path == Path(path)


def test_a_relative_path_begins_at_the_folder_of_the_configuration() -> None:
    settings = SqliteSettings.model_validate({"url": "sqlite:///./data/b.db"}, context={"base_dir": Path("/srv")})
    assert (settings.url, settings.path) == ("sqlite:////srv/data/b.db", Path("/srv/data/b.db"))
