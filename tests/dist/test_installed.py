"""The wheel in environments of its own, on each Python, with each extra: it needs nothing of the source tree."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.dist.conftest import Environment, of_the_machine, uv
from tests.dist.extras import NEEDING
from tests.dist.interpreters import PROJECT, ROOT, chosen
from tests.pages import session
from tests.pages.blocks import Block, commands
from tests.pages.catalogue import Run, fates
from tests.pages.test_commands import PROGRAMS, run

_ASKED = os.environ.get("A2A_GATEWAY_DIST")
pytestmark = pytest.mark.skipif(_ASKED is None, reason="`make dist` builds what is tried here")

EXTRAS = list(PROJECT["optional-dependencies"])
PYTHONS = {} if _ASKED is None else chosen(_ASKED)
README = [
    pytest.param(block, fate, id=f"line {block.line}")
    for block in commands(ROOT / "README.md")
    for fate in fates(block.page, block.first)
    if isinstance(fate, Run)
]
_DEMO = """\
a2a-gateway demo > said
until grep -q Ctrl-C said; do sleep 0.1; done
sed -n 's/^  \\(a2a-gateway\\|curl\\) /\\1 /p' said > lines
bash -euxo pipefail lines
"""


@pytest.fixture(scope="module", params=list(PYTHONS))
def python(request: pytest.FixtureRequest) -> str:
    """The path of one of the Pythons."""
    return PYTHONS[request.param]


@pytest.fixture(scope="module")
def bare(environment: Environment, wheel: Path, python: str) -> Iterator[Path]:
    """The programs of an environment without any extra."""
    with environment(python, str(wheel)) as programs:
        yield programs


def told(text: str, folder: Path, programs: Path, env: Mapping[str, str] = MappingProxyType({})) -> str:
    done = session.run(text, folder, programs, env)
    assert done.code == 0, done.output
    return done.output.partition("\n---\n")[2]


def asked(extra: str, folder: Path, programs: Path) -> str:
    (folder / "gateway.yaml").write_text(f"version: 1\n{NEEDING[extra].configuration}")
    return told(NEEDING[extra].asks, folder, programs)


def test_every_extra_has_something_that_needs_it() -> None:
    assert set(EXTRAS) == NEEDING.keys()


def test_without_extras_it_asks_for_each_by_name_where_it_is_needed(bare: Path, tmp_path: Path) -> None:
    for extra, need in NEEDING.items():
        assert need.lacking in asked(extra, tmp_path, bare)


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_is_enough_for_what_needs_it(
    environment: Environment, wheel: Path, tmp_path: Path, python: str, extra: str
) -> None:
    with environment(python, f"{PROJECT['name']}[{extra}] @ {wheel.as_uri()}") as programs:
        said = asked(extra, tmp_path, programs)
    assert (NEEDING[extra].having in said.lower(), NEEDING[extra].lacking in said) == (True, False)


def test_it_tells_the_version_that_its_file_has(bare: Path, wheel: Path, tmp_path: Path) -> None:
    assert told("a2a-gateway --version", tmp_path, bare) == f"a2a-gateway {wheel.name.split('-')[1]}\n"


@pytest.mark.parametrize(("block", "fate"), README)
def test_the_lines_of_the_readme_work(bare: Path, tmp_path: Path, block: Block, fate: Run) -> None:
    ended = run(block, fate, tmp_path, bare, {})
    assert ended.code == 0, ended.output


def test_with_all_extras_the_demo_answers_whatever_it_tells_people_to_try(
    environment: Environment, wheel: Path, tmp_path: Path, python: str
) -> None:
    with environment(python, f"{PROJECT['name']}[{','.join(EXTRAS)}] @ {wheel.as_uri()}") as programs:
        said = told(_DEMO, tmp_path, programs)
    tried = re.findall(r"^\+ (a2a-gateway|curl) ", said, re.MULTILINE)
    assert (len(tried) > 5, set(tried)) == (True, {"a2a-gateway", "curl"})
    assert said.count("Oslo: 3 degrees") >= 4
    assert "My name is Ada" in said


def test_the_source_distribution_can_be_installed(environment: Environment, source: Path, tmp_path: Path) -> None:
    with environment(list(PYTHONS.values())[-1], str(source)) as programs:
        version = source.name.removesuffix(".tar.gz").split("-")[1]
        assert told("a2a-gateway --version", tmp_path, programs) == f"a2a-gateway {version}\n"


def test_uv_runs_the_wheel_as_the_readme_says(tmp_path: Path) -> None:
    [block] = [each for each in commands(ROOT / "README.md") if each.first.startswith("make dist")]
    (tmp_path / "dist").symlink_to(ROOT / "dist")
    _, _, runs = block.text.partition("\n")
    text = f"PATH={Path(os.environ.get('UV', 'uv')).parent}:$PATH\n{runs}a2a-gateway send -a chat 'Hello'"
    way = {name: value for name, value in of_the_machine().items() if name.startswith(("SSL_", "UV_"))}
    way["UV_CACHE_DIR"] = uv("cache", "dir").strip()
    assert "Hello" in told(text, tmp_path, PROGRAMS, way)
