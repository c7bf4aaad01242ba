"""The regular expressions of a schema. Law: a search takes time in proportion to the text, whoever wrote the expression.

JSON Schema means the expressions of ECMA-262, whose engines backtrack: one expression of ten characters can keep them busy for
hours. RE2 never backtracks. What it cannot express (look-around, back-references, more than 1,000 repetitions) is not
searched for.

Source: https://github.com/google/re2/wiki/Syntax
"""

import re
from typing import Any

import re2

from gateway.core.tools.steps import Steps

_MEMORY = 1024 * 1024
"""Bytes of one compiled expression, with its states: enough for some 10,000 instructions."""

_MOST = 200
"""The most expressions of one schema that are searched for."""

_WORK = 800
"""The work of a step: instructions times bytes of text. Where each byte keeps all instructions busy, it takes RE2 6 us."""

_COMPILING = 50
"""Steps for compiling one expression."""

_ESCAPES = re.compile(r"\\(?:u\{(?P<long>[0-9a-fA-F]{1,6})\}|u(?P<short>[0-9a-fA-F]{4})|.)", re.DOTALL)
_HALVES = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}|[\ud800-\udfff]")
"""Halves of surrogate pairs, which are no characters of a text."""

_WRONG = (b"missing )", b"unexpected )", b"trailing \\", b"no argument for repetition")
"""How the errors of RE2 begin for what no kind of regular expression allows."""


class NoPattern(Exception):
    """The text is no regular expression of any kind."""


class Patterns:
    """The compiled expressions of one schema."""

    def __init__(self) -> None:
        self._compiled: dict[str, Any] = {}

    def add(self, pattern: str) -> bool:
        """Compiles the expression. Returns False for one that RE2 cannot express. Raises: NoPattern."""
        if pattern not in self._compiled:
            self._compiled[pattern] = _compile(pattern) if len(self._compiled) < _MOST else None
        return self._compiled[pattern] is not None

    def search(self, pattern: str, text: str, steps: Steps) -> bool | None:
        """Whether the expression is found in the text; None for one that RE2 cannot express.

        Raises: StepsUsedUp; NoPattern for an expression that stands in no subschema.
        """
        if pattern not in self._compiled:
            steps.spend(_COMPILING)
            self.add(pattern)
        compiled = self._compiled[pattern]
        if compiled is None:
            return None
        data = text.encode()
        steps.spend(1 + len(data) * compiled.programsize // _WORK)
        return compiled.search(data) is not None


def _compile(pattern: str) -> Any:
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    options.never_capture = True
    if _HALVES.search(pattern):
        return None
    try:
        return re2.compile(_translated(pattern).encode(), options)
    except re2.error as error:
        if error.args[0].startswith(_WRONG):
            raise NoPattern(f"{pattern!r} is no regular expression") from error
        return None


def _translated(pattern: str) -> str:
    r"""The expression with `\uXXXX` in the form of RE2."""

    def escape(found: re.Match[str]) -> str:
        digits = found["long"] or found["short"]
        return rf"\x{{{digits}}}" if digits else found[0]

    return _ESCAPES.sub(escape, pattern)
