"""Text for people: the known word that a misspelt one resembles."""

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The known word that is closest, if one is close."""
    by_form = {name.lower().replace("-", "_"): name for name in known}
    close = difflib.get_close_matches(word.lower().replace("-", "_"), by_form, n=1, cutoff=0.6)
    return by_form[close[0]] if close else None
