"""Blocks of an answer that go back to the model as they came, as items of the ledger. Law: a block is kept with the name of its
model; thinking goes back to that model only. A tool of the service goes back as a pair of its use and its result; its use alone
only in an answer that waits for the results of other tools, since the service runs it with the request that brings these.

Source: Anthropic's documentation, "Server tools".
"""

from collections.abc import Iterable, Sequence

from adapters.anthropic.content import Block
from gateway.a2a.model import Json
from gateway.ports.conversation import Item, OpaqueItem, ReasoningItem, UserItem

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

    def __init__(self, items: Sequence[Item], model: str) -> None:
        self._model = model
        blocks = _blocks(items)
        self._uses = _uses(blocks)
        results = {block.get("tool_use_id") for block in blocks if is_result(str(block.get("type")))}
        self._paired = self._uses & results
        begun = max((index for index, item in enumerate(items) if isinstance(item, UserItem)), default=-1) + 1
        self._pending = _uses(_blocks(items[begun:])) - results
        """Of the answer that the request continues. What the user says ends an answer, and its pending tools never run."""

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
            return block if block.get("id") in self._paired | self._pending else None
        if is_result(kind):
            return block if block.get("tool_use_id") in self._paired else None
        return block


def _blocks(items: Iterable[Item]) -> list[Block]:
    return [found for item in items if isinstance(item, OpaqueItem) and (found := _kept(item.payload))]


def _uses(blocks: Iterable[Block]) -> set[Json]:
    return {block.get("id") for block in blocks if block.get("type") in USES}


def _kept(value: Json) -> Block | None:
    """None for an item of another adapter."""
    match value:
        case {"model": str(), "block": {"type": str()}}:
            block: Block = value["block"]
            return block
    return None
