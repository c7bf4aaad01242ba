"""The names of spans and of what they carry. Law: no name of OpenTelemetry's conventions stands anywhere else.

Source: OpenTelemetry, semantic conventions for generative AI, 0.1.0, of which all is in development: agent spans, client spans,
and the Agent2Agent Protocol.
"""

from collections.abc import Mapping
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec

from gateway.a2a.model import Json
from gateway.ports.capabilities import Backend
from gateway.ports.spans import CallSpan, PushSpan, RequestSpan, Span, Tokens, ToolSpan, TrySpan, TurnSpan

Value: TypeAlias = str | int | float | bool
Attributes: TypeAlias = Mapping[str, Value]

CONTENT = 8192
"""Bytes of what was said that an attribute has."""


def name_of(span: Span) -> str:
    match span:
        case TurnSpan(agent=agent):
            return f"invoke_agent {agent}"
        case CallSpan(model=model):
            return f"chat {model.name}" if model is not None and model.name else "chat"
        case TrySpan():
            return "attempt"
        case ToolSpan(tool=tool):
            return f"execute_tool {tool}"
        case PushSpan():
            return "push"
        case RequestSpan(operation=operation):
            return operation


def attributes_of(span: Span) -> Attributes:
    """Those that have no value are left out."""
    given: dict[str, Value | None] = {"error.type": span.failure or None}
    match span:
        case TurnSpan():
            given |= {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": span.agent,
                "gen_ai.conversation.id": span.context,
                "a2a.task.id": span.task,
                "a2a.task.state": span.state,
                "a2a_gateway.turn": span.turn,
                "a2a_gateway.taken_over": span.taken_over or None,
                "gen_ai.input.messages": _content(span.said),
                "gen_ai.output.messages": _content(span.answered),
            }
            given |= _tokens(span.tokens)
        case CallSpan():
            given |= {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": None if span.model is None else span.model.provider,
                "gen_ai.request.model": None if span.model is None else span.model.name,
                "gen_ai.agent.name": span.agent,
                "gen_ai.conversation.id": span.context,
                "gen_ai.response.time_to_first_chunk": None if span.first is None else _seconds(span.began, span.first),
                "a2a_gateway.round": span.round,
                "a2a_gateway.attempts": span.attempts,
            }
            given |= _server(span.backend) | _tokens(span.tokens)
        case TrySpan():
            given |= {"gen_ai.agent.name": span.agent, "a2a_gateway.attempt": span.attempt}
            given |= _server(span.backend)
        case ToolSpan():
            given |= {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": span.tool,
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": span.call,
                "gen_ai.agent.name": span.agent,
                "gen_ai.conversation.id": span.context,
                "a2a_gateway.tool.source": span.source or None,
                "gen_ai.tool.call.arguments": _content(span.arguments),
                "gen_ai.tool.call.result": _content(span.result),
            }
        case PushSpan():
            given |= {
                "a2a.task.id": span.task,
                "http.request.method": "POST",
                "http.response.status_code": span.status,
                "a2a_gateway.push.config": span.config,
                "a2a_gateway.push.event": span.number,
            }
        case RequestSpan():
            given |= {
                "a2a.method.name": span.operation,
                "a2a.message.id": span.message or None,
                "a2a.task.id": span.task or None,
                "gen_ai.agent.name": span.agent,
                "gen_ai.conversation.id": span.context or None,
            }
    return {name: value for name, value in given.items() if value is not None}


def _tokens(tokens: Tokens) -> dict[str, Value | None]:
    return {
        "gen_ai.usage.input_tokens": tokens.input,
        "gen_ai.usage.output_tokens": tokens.output,
        "gen_ai.usage.cache_read.input_tokens": tokens.cached,
        "gen_ai.usage.reasoning.output_tokens": tokens.reasoning,
    }


def _server(backend: Backend | None) -> dict[str, Value | None]:
    if backend is None:
        return {}
    at = urlsplit(backend.address)
    if at.hostname is None:
        return {"server.address": backend.address}
    return {"server.address": at.hostname, "server.port": at.port or {"https": 443, "http": 80}.get(at.scheme)}


def _seconds(began: int, ended: int) -> float:
    return max(0, ended - began) / 1000


def _content(value: Json) -> str | None:
    return None if value is None else msgspec.json.encode(value)[:CONTENT].decode(errors="ignore")
