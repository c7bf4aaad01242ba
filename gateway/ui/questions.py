"""Questions before something is done. Law: a page that needs no script; it says what will happen, and changes nothing."""

from collections.abc import Sequence

import msgspec

from gateway.a2a.errors import A2AError
from gateway.ui.visit import Page


class Question(msgspec.Struct, frozen=True):
    """`asked` is the title, `will` are sentences of the gateway's own about what happens, `facts` words and texts of others.
    `typed` is what has to be typed first, and `typed_is` what that is; empty: nothing. `trail` are the pages above this one
    with their names, the last one that it came from. The form brings back `at_stake`, a number that the page has told: where
    it has risen since, the question is asked again."""

    asked: str
    will: Sequence[str]
    button: str
    trail: Sequence[tuple[str, str]]
    facts: Sequence[tuple[str, str]] = ()
    typed: str = ""
    typed_is: str = ""
    at_stake: int = 0
    danger: bool = True

    def page(self, refusal: A2AError | None = None) -> Page:
        values = {"question": self, "problem": None if refusal is None else refusal.message}
        return Page("question.html", self.asked, values, 200 if refusal is None else refusal.http, refusal=refusal)
