"""The commands of the pages: every block of `sh` in a Markdown file of the project."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^ *```(\w*)")
_COMMANDS = ("sh", "console", "bash", "shell")
_FOLDERS = ("docs", "examples", "deploy", "tests", "bench")


@dataclass(frozen=True, slots=True)
class Block:
    """`page` is the path of the file in the project, `text` what stands between the fences, `line` where it begins."""

    page: str
    line: int
    text: str

    @property
    def first(self) -> str:
        """Its first line, by which the catalogue knows it."""
        return self.text.partition("\n")[0]


def pages() -> list[Path]:
    below = (path for folder in _FOLDERS for path in (ROOT / folder).rglob("*.md") if "node_modules" not in path.parts)
    return [*sorted(ROOT.glob("*.md")), *sorted(below)]


def fenced(path: Path, languages: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """The blocks in these languages, each with the number of its first line."""
    begin, language, lines = 0, "", list[str]()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(keepends=True), 1):
        fence = _FENCE.match(line)
        if fence is None:
            lines.append(line)
        elif begin:
            if language in languages:
                yield begin, "".join(lines)
            begin = 0
        else:
            begin, language, lines = number + 1, fence[1], []


def commands(path: Path) -> list[Block]:
    page = path.relative_to(ROOT).as_posix()
    return [Block(page, line, text) for line, text in fenced(path, _COMMANDS)]
