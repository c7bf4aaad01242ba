"""The version is the tag: also from a source distribution, without tags, and without git."""

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.dist.conftest import uv
from tests.dist.interpreters import ROOT

pytestmark = pytest.mark.skipif("A2A_GATEWAY_DIST" not in os.environ, reason="`make dist` builds what is tried here")


def git(*words: str, folder: Path) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, check=True)


def built(folder: Path, out: Path) -> str:
    """The version of the wheel that the folder builds."""
    uv("build", "--wheel", "--out-dir", out, folder)
    [wheel] = out.glob("*.whl")
    return wheel.name.split("-")[1]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """One commit with the files as they are here, and no tag."""
    folder = tmp_path / "clone"
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True)
    for name in listing.stdout.split("\0"):
        if name and not name.startswith(("tests/", "bench/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    git("init", "--quiet", folder=folder)
    git("add", "--all", folder=folder)
    git("commit", "--quiet", "--message", "one", folder=folder)
    return folder


def test_a_tag_is_the_version(clone: Path, tmp_path: Path) -> None:
    git("tag", "v1.2.3", folder=clone)
    assert built(clone, tmp_path / "out") == "1.2.3"


def test_a_commit_behind_a_tag_is_on_the_way_to_the_next_version(clone: Path, tmp_path: Path) -> None:
    git("tag", "v1.2.3", folder=clone)
    git("commit", "--quiet", "--allow-empty", "--message", "two", folder=clone)
    assert re.fullmatch(r"1\.2\.4\.dev1\+g[0-9a-f]+", built(clone, tmp_path / "out"))


def test_a_clone_without_tags_builds(clone: Path, tmp_path: Path) -> None:
    assert re.fullmatch(r"0\.0\.1\.dev1\+g[0-9a-f]+", built(clone, tmp_path / "out"))


def test_files_without_git_build(clone: Path, tmp_path: Path) -> None:
    shutil.rmtree(clone / ".git")
    assert built(clone, tmp_path / "out") == "0.0.0"


def test_a_source_distribution_keeps_its_version(source: Path, tmp_path: Path) -> None:
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    name = source.name.removesuffix(".tar.gz")
    assert built(tmp_path / name, tmp_path / "out") == name.split("-")[1]
