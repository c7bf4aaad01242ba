"""Prints the commands of a page as one script, in their order: python -m tests.pages.commands docs/first-hour.md"""

import re
import sys
from pathlib import Path

_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(page: str) -> str:
    return "".join(_BLOCK.findall(page))


if __name__ == "__main__":
    sys.stdout.write(commands(Path(sys.argv[1]).read_text()))
