"""Blocks of an answer that go back to the model as they came, as items of the ledger. Law: a block is kept with the name of its
model; thinking goes back to that model only, and a tool of the service only as a pair of its use and its result.
"""

from collections.abc import Iterable

from adapters.anthropic.content import Block
from gateway.a2a.model import Json
from gateway.ports.conversation import Item, OpaqueItem, ReasoningItem

THINKING = frozenset({"thinking", "redacted_thinking"})
COMPACTION = "compaction"
USES = frozenset({"server_tool_use", "mcp_tool_use"})
"""Tools that the service runs. Its results are blocks whose type ends with `_tool_result`."""

_RESULT = "_tool_result"


def is_result(kind: str) -> bool:
    return kind.endswith(_RESULT)


def kept_thinking(block: Block, model: str) -> ReasoningItem:
    text = block.get("thinking")
    return ReasoningItem(text if isinstance(text, str) else "", {"model": model, "block": block})


def kept_block(block: Block, model: str) -> OpaqueItem:
    """A compaction that did not succeed has no content, and stands for nothing."""
    kind = str(block["type"])
    boundary = kind == COMPACTION and block.get("content") is not None
    return OpaqueItem(kind, {"model": model, "block": block}, boundary)


class Replay:
    """The kept blocks among the items of a request to this model."""

    def __init__(self, items: Iterable[Item], model: str) -> None:
        self._model = model
        blocks = [found for item in items if isinstance(item, OpaqueItem) and (found := _kept(item.payload))]
        self._uses = {block.get("id") for block in blocks if block.get("type") in USES}
        results = {block.get("tool_use_id") for block in blocks if is_result(str(block.get("type")))}
        self._paired = self._uses & results

    def is_own(self, call_id: str) -> bool:
        """Whether this call of a tool of the service is among the kept blocks."""
        return call_id in self._uses

    def thinking(self, item: ReasoningItem) -> Block | None:
        block = _kept(item.opaque)
        mine = isinstance(item.opaque, dict) and item.opaque.get("model") == self._model
        return block if mine else None

    def block(self, item: OpaqueItem) -> Block | None:
        block = _kept(item.payload)
        if block is None:
            return None
        kind = str(block.get("type"))
        if kind in USES:
            return block if block.get("id") in self._paired else None
        if is_result(kind):
            return block if block.get("tool_use_id") in self._paired else None
        return block


def _kept(value: Json) -> Block | None:
    """None for an item of another adapter."""
    match value:
        case {"model": str(), "block": {"type": str()}}:
            block: Block = value["block"]
            return block
    return None
