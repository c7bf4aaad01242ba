"""What the settings of an agent mask in its tool calls, on pages too. Law: where anything is masked, a text that cannot be
judged is hidden as a whole."""

import msgspec

from gateway.a2a.redaction import MASK, at_any_depth, redacted, redacted_member
from gateway.a2a.tool_calls import CallFacts, Rendering, requested
from gateway.core.agents import Agent
from gateway.ledger.admin.timelines import BodyKind

_CALL = CallFacts("", "", 0, 0, "", None, "")
_JUDGED: frozenset[BodyKind] = frozenset({"arguments", "outcome", "item", "said", "artifacts"})
"""They may hold what a tool was given or has said."""


class Masks:
    """`any` says that the agent masks something. Of an agent that is gone nothing is known, and all is hidden."""

    def __init__(self, agent: Agent | None) -> None:
        self._redact = None if agent is None else agent.policies.tool_calls.redact
        self.any = self._redact is None or bool(self._redact)

    @property
    def kinds(self) -> frozenset[BodyKind]:
        return _JUDGED if self.any else frozenset()

    def hide(self, kind: BodyKind, text: str) -> str:
        """The stored text with its masks."""
        if kind not in self.kinds:
            return text
        match kind:
            case "arguments":
                return self._arguments(text)
            case "outcome":
                return self._outcome(text)
            case _:
                return MASK

    def seen(self, words: str) -> str:
        """Words of an answer, which no path names as a whole; hidden where a value that is masked may be told in them."""
        if self._redact is None:
            return MASK
        paths = tuple(path for path in map(at_any_depth, self._redact) if len(path.steps) > 1 or path.steps[0].deep)
        shown = redacted({"args": words, "response": words}, paths)[0]
        return words if shown == {"args": words, "response": words} else MASK

    def _arguments(self, text: str) -> str:
        if not self._redact:
            return MASK
        part = requested(_CALL, text, Rendering(redact=self._redact))
        return msgspec.json.encode(part.data["args"] if isinstance(part.data, dict) else MASK).decode()

    def _outcome(self, text: str) -> str:
        """A member is masked at every depth: a tool that failed says its words in another form, and that is not asked here."""
        if not self._redact:
            return MASK
        try:
            outcome = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return MASK
        whole = outcome if isinstance(outcome, dict) else {"result": outcome}
        return msgspec.json.encode(
            redacted_member("response", whole, tuple(map(at_any_depth, self._redact)))[0]
        ).decode()
