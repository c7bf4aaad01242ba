"""The configurations on the pages: each whole one is valid, each part says that it is one."""

import re
from pathlib import Path

import pytest

from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL), 1)
]
_PART = "# part of gateway.yaml\n"
_OTHERS_TYPE = "type: echo\n"


@pytest.mark.parametrize("block", BLOCKS)
def test_a_configuration_is_valid_or_says_that_it_is_a_part(block: str, tmp_path: Path) -> None:
    if block.startswith(_PART) or _OTHERS_TYPE in block:
        return
    secrets = dict.fromkeys(re.findall(r"\$\{(\w+)\}", block), "secret")
    load(block, source="page.yaml", env=secrets, plugins=Registry(), base_dir=tmp_path)


def test_an_invalid_configuration_would_be_found(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid):
        load("version: 1\nagent: {}\n", source="page.yaml", env={}, plugins=Registry(), base_dir=tmp_path)
