"""Every command on the pages works, or the catalogue says why nobody has seen it do so."""

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.pages import session
from tests.pages.blocks import ROOT, Block, commands, fenced, pages
from tests.pages.catalogue import BLOCKS, PAGES, Elsewhere, NotRun, Run, begins, fates

PROGRAMS = Path(sys.prefix) / "bin"
ALL = [block for page in pages() for block in commands(page)]
HERE = [(block, fate) for block in ALL for fate in fates(block.page, block.first) if isinstance(fate, Run)]


def whole_configuration(page: Path) -> str:
    """The first configuration of the page that is not a part of one."""
    return next(text for _, text in fenced(page, ("yaml",)) if text.startswith("version: 1"))


def run(block: Block, fate: Run, folder: Path, programs: Path, env: Mapping[str, str]) -> session.Told:
    if fate.configured:
        (folder / "gateway.yaml").write_text(whole_configuration(ROOT / block.page))
    text = "\n".join(part.rstrip("\n") for part in (fate.before, block.text, fate.after) if part)
    return session.run(text, folder, programs, env, ports=fate.ports, codes=fate.codes)


def test_every_block_of_commands_is_run_or_has_a_reason_why_not() -> None:
    assert [(block.page, block.line, block.first) for block in ALL if len(fates(block.page, block.first)) != 1] == []


def test_the_catalogue_knows_no_block_that_is_not_there() -> None:
    there = {block.page: [each.first for each in ALL if each.page == block.page] for block in ALL}
    gone = [
        (page, beginning)
        for page, blocks in BLOCKS.items()
        for beginning in blocks
        if not any(begins(first, beginning) for first in there.get(page, ()))
    ]
    assert gone == []
    assert there.keys() >= PAGES.keys()


def test_what_runs_a_block_elsewhere_is_there() -> None:
    named = [*PAGES.values(), *(fate for blocks in BLOCKS.values() for fate in blocks.values())]
    assert [fate.by for fate in named if isinstance(fate, Elsewhere) and not (ROOT / fate.by).exists()] == []
    assert all(fate.why for fate in named if isinstance(fate, NotRun))


@pytest.mark.parametrize(
    ("block", "fate"),
    [pytest.param(block, fate, id=f"{block.page}:{block.line}") for block, fate in HERE if not fate.peer],
)
def test_commands_of_a_page_work_as_they_stand(block: Block, fate: Run, tmp_path: Path) -> None:
    if fate.needs and shutil.which(fate.needs) is None:
        pytest.skip(f"{fate.needs} is not installed")
    told = run(block, fate, tmp_path, PROGRAMS, {})
    assert told.code == 0, told.output


@pytest.mark.parametrize("text", ["a2a-gateway send 'Hello'", "a2a-gateway serve nonsense:", "false", "exit 3"])
def test_commands_that_do_not_work_are_found(text: str, tmp_path: Path) -> None:
    assert session.run(text, tmp_path, PROGRAMS, {}).code != 0


def test_only_what_a_reader_does_without_being_told_is_done_to_the_commands() -> None:
    text = (
        "a2a-gateway demo\n"
        "KEY=a#b .venv/bin/a2a-gateway serve 'x:http://h:1#M' &   # and so on\n"
        "python server.py 19110 &\n"
        "cat > f <<'EOF'\na2a-gateway serve x:\nEOF\n"
        "a2a-gateway serve -c f & gateway=$!\n"
        "a2a-gateway send hello # waits\n"
    )
    made = re.sub(r"(?s)^.*?\nlistening\(\).*?\n", "", session.script(text, {"19110": 20001}, (13,)))
    assert made == (
        'ended\na2a-gateway demo --port "$A2A_GATEWAY__SERVER__PORT" &\nserving\n'
        "ended\nKEY=a#b .venv/bin/a2a-gateway serve 'x:http://h:1#M' &\nserving\n"
        "python server.py 20001 &\nlistening 20001\n"
        "cat > f <<'EOF'\na2a-gateway serve x:\nEOF\n"
        "a2a-gateway serve -c f & gateway=$!\n"
        "a2a-gateway send hello || case $? in 13) ;; *) exit 1 ;; esac\n"
    )
