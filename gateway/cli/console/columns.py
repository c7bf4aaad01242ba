"""Texts in the columns of a terminal, of which a character may take none, one or two.

Law: what a person sees as one character is never cut; ASCII needs no tables of characters, whose import takes a while.
"""


def width(text: str) -> int:
    """The columns that a text without control characters takes."""
    if text.isascii():
        return len(text)
    import wcwidth

    return wcwidth.width(text)


def pad(text: str, columns: int) -> str:
    """The text with spaces behind it that fill so many columns."""
    return text + " " * (columns - width(text))


def cut(text: str, columns: int) -> str:
    """The text in at most so many columns, with an ellipsis in place of what is left out."""
    if width(text) <= columns:
        return text
    if columns < 1:
        return ""
    if text.isascii():
        return f"{text[: columns - 1]}…"
    import wcwidth

    return f"{wcwidth.clip(text, 0, columns - 1).rstrip()}…"
