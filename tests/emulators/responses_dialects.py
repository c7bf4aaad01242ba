"""Differences of other Responses servers from OpenAI's own; from captures of real ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True, slots=True)
class ResponsesDialect:
    """Differences of a server from OpenAI's own wire."""

    event_lines: bool = True
    done_line: bool = False
    number_step: int = 1
    """Distance of two sequence numbers; 0: there are none."""
    one_output_index: bool = False
    text_done: bool = True
    mcp_as_function: bool = False
    """Streams an MCP call's arguments as those of a function before the item turns out to be an `mcp_call`."""
    unknown_previous: Literal["refused", "detail", "ignored"] = "refused"
    conversations: Literal["locked", "unlocked", "ignored"] = "locked"
    """Requests on a conversation: one at a time; at any time, without an echo of it in the answer; answered without the
    conversation."""
    lists_responses: bool = False
    """Lists the responses that it keeps, those of one conversation where the query names it."""
    id_length: int = 48
    id_prefix: str = "resp_"


RESPONSES_DIALECTS: Mapping[str, ResponsesDialect] = MappingProxyType(
    {
        "openai": ResponsesDialect(),
        "ogx": ResponsesDialect(
            event_lines=False,
            number_step=2,
            one_output_index=True,
            text_done=False,
            mcp_as_function=True,
            unknown_previous="detail",
            conversations="unlocked",
        ),
        "litellm": ResponsesDialect(
            done_line=True, number_step=0, unknown_previous="ignored", conversations="ignored", id_length=448
        ),
    }
)
