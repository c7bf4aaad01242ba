"""Prints the commands of a page as one script, in their order: python -m tests.pages.commands docs/first-hour.md"""

import sys
from pathlib import Path

from tests.pages import blocks

if __name__ == "__main__":
    sys.stdout.write("".join(block.text for block in blocks.commands(Path(sys.argv[1]).absolute())))
