"""Masks the outcome of a tool call for its caller. Law: first masked as a whole, then cut; a large outcome is masked in another
thread, so that the event loop goes on."""

from msgspec import UNSET
from msgspec.structs import replace

from gateway.a2a import tool_calls
from gateway.a2a.tool_calls import Rendering
from gateway.a2a.weight import data_weight
from gateway.core.tools import tool_call
from gateway.core.tools.tool_call import Settled
from gateway.foundation.off_loop import off_loop


async def masked(settled: Settled, rendering: Rendering, max_result: int | None = None) -> Settled:
    """The outcome with what its caller sees of it. `max_result` is the number of bytes to which the result was cut for
    the model, if it was."""
    if not rendering.redact:
        return settled
    cut = settled.under_masks is not UNSET
    whole, limit = (settled.under_masks, max_result) if cut else (settled.output, None)
    phase = tool_call.PHASES[settled.status]
    response = await off_loop(data_weight(whole), tool_calls.respond, phase, whole, rendering, limit)
    return replace(settled, under_masks=response)
