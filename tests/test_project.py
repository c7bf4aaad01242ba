"""The repository itself: what is in it, what is not, and that every module has its tests."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from tests.faults.catalogue import CATALOGUE
from tests.scenarios.catalogue import SCENARIOS

ROOT = Path(__file__).parent.parent
PACKAGES = ("gateway", "adapters", "storage")


REGISTRY_HOST = re.compile(
    r"pypi\.org|pythonhosted\.org|registry\.npmjs\.org|registry\.yarnpkg\.com|docker\.io|ghcr\.io|quay\.io"
    r"|proxy\.golang\.org|conda\.anaconda\.org|index-url|find-links",
    re.IGNORECASE,
)
MACHINE_PATH = re.compile(r"(?<![\w.*$}~)-])/(?:root|work|Users|home)/[\w.]|(?<![\w$}])[A-Z]:\\Users\\")
# uv writes the lock, and this file has to name what it looks for.
MAY_NAME_HOSTS = {"uv.lock", "tests/test_project.py"}
LOCK_HOSTS = {"pypi.org", "files.pythonhosted.org"}


def repository_files() -> list[Path]:
    """Every text file that is in git, or would be with the next `git add`."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: which files belong to the project is not known here")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def packages() -> Iterator[str]:
    """`gateway/a2a/wire` and its like: every package that holds modules."""
    for init in chain.from_iterable((ROOT / package).rglob("__init__.py") for package in PACKAGES):
        if "migrations" not in init.parts and len(list(init.parent.glob("*.py"))) > 1:
            yield init.parent.relative_to(ROOT).as_posix()


def lines_matching(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in repository_files():
        name = path.relative_to(ROOT).as_posix()
        lines = path.read_bytes().decode("utf-8", errors="replace").split("\n")
        if name not in MAY_NAME_HOSTS:
            found += [f"{name}:{number}: {line}" for number, line in enumerate(lines, 1) if pattern.search(line)]
    return found


def test_no_file_names_a_package_registry() -> None:
    assert lines_matching(REGISTRY_HOST) == []


def test_no_file_holds_a_path_of_somebodys_machine() -> None:
    assert lines_matching(MACHINE_PATH) == []


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("/home/ada/a2a-gateway", True),
        ("cd /root/.pyenv", True),
        ('"/work/main"', True),
        ("file:///Users/ada", True),
        (r"C:\Users\ada", True),
        ("https://host.example/home/page", False),
        ("$(HOME)/work/main", False),
        ("~/work/main", False),
        ("/home/", False),
        ("tests/work/x", False),
    ],
)
def test_a_path_of_somebodys_machine_is_told_from_a_url_and_a_relative_path(line: str, is_one: bool) -> None:
    assert bool(MACHINE_PATH.search(line)) is is_one


def test_the_lock_takes_everything_from_the_public_index() -> None:
    lock = (ROOT / "uv.lock").read_text(encoding="utf-8")
    assert set(re.findall(r'(?:registry|url) = "https?://([^/"]+)', lock)) == LOCK_HOSTS
    assert set(re.findall(r"source = \{ (\w+) =", lock)) == {"registry", "editable"}


def test_every_package_has_tests_in_the_folder_that_mirrors_it() -> None:
    assert [package for package in packages() if not list((ROOT / "tests" / package).glob("test_*.py"))] == []


def test_a_package_says_its_law_and_nothing_else() -> None:
    found = chain.from_iterable((ROOT / top).rglob("__init__.py") for top in PACKAGES)
    law = re.compile(r'"""[^"]+\n\nLaw: [^"]+"""\n')
    assert [path for path in found if not law.fullmatch(path.read_text(encoding="utf-8"))] == []


def test_init_files_of_tests_are_empty() -> None:
    assert [path for path in (ROOT / "tests").rglob("__init__.py") if path.stat().st_size] == []


def test_decisions_are_numbered_without_gaps() -> None:
    names = sorted(path.name for path in (ROOT / "docs" / "adr").iterdir())
    assert [name[:5] for name in names] == [f"{number:04}-" for number in range(1, len(names) + 1)]


def test_every_decision_has_its_number_and_the_three_parts() -> None:
    for path in (ROOT / "docs" / "adr").glob("*.md"):
        headings = re.findall(r"^#+ .*", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert headings[0].startswith(f"# {int(path.name[:4])}. "), path.name
        assert headings[1:] == ["## Context", "## Decision", "## Consequences"], path.name


def test_links_between_the_pages_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in repository_files()
        if page.suffix == ".md"
        for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_makefile_and_image_use_the_same_uv() -> None:
    makefile = re.search(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    image = re.search(r"uv==(\S+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    assert makefile is not None
    assert image is not None
    assert makefile[1] == image[1]


def test_the_page_on_the_state_model_lists_every_scenario_and_every_fault() -> None:
    page = (ROOT / "docs" / "state-model.md").read_text(encoding="utf-8")
    scenarios, faults = page.split("\n## 14. ")
    assert re.findall(r"^- \*\*(\d+[a-z]?)\*\* ", scenarios, re.MULTILINE) == list(
        dict.fromkeys(sorted(SCENARIOS, key=_by_number))
    )
    assert set(re.findall(r"^\| ([A-Z]\d+) \| ", faults, re.MULTILINE)) == set(CATALOGUE)


def _by_number(scenario: str) -> tuple[int, str]:
    return int(scenario.rstrip("bcd")), scenario
