"""Text of others for a page: what cannot be seen is made visible, and what is long is cut. Law: no character of a text changes
the order or the place of what stands around it; markup is left to the template, which escapes it."""

import unicodedata

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of Unicode: controls, marks of direction and format, halves of pairs, no characters, ends of lines."""

_JOINERS = "\u200c\u200d"
"""They belong to words of several scripts, and to emoji."""


def foreign(text: str, longest: int) -> str:
    """The text in one line, of at most `longest` characters of the original; `[U+202E]` stands for what has no shape."""
    shown = "".join(map(_shown, text[:longest]))
    return shown if len(text) <= longest else f"{shown}…"


def _shown(character: str) -> str:
    if character in "\n\r\t":
        return " "
    if unicodedata.category(character) in _UNSEEN and character not in _JOINERS:
        return f"[U+{ord(character):04X}]"
    return character
