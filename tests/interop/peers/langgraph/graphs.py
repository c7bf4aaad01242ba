"""Graphs without a model of their own: the words of a message steer them."""
# mypy: ignore-errors
# The packages it imports are absent from the project's environment on purpose.

import asyncio
import json
from typing import Annotated

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt
from typing_extensions import TypedDict

_THOUGHT = [
    {"type": "reasoning", "reasoning": "Step by step.", "index": 0},
    {"type": "text", "text": "Thought over.", "index": 1},
]


class Words(BaseChatModel):
    """Answers word by word. It calls tools where the last message asks for weather, and waits where it says "slow"."""

    @property
    def _llm_type(self):
        return "words"

    def bind_tools(self, tools, **options):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **options):
        return ChatResult(generations=[ChatGeneration(message=_reply(messages))])

    async def _astream(self, messages, stop=None, run_manager=None, **options):
        last = messages[-1].content
        if last == "raise":
            raise ValueError("the model is down")
        reply = _reply(messages)
        for piece in _pieces(reply):
            if "slow" in str(last):
                await asyncio.sleep(0.5)
            chunk = ChatGenerationChunk(message=piece)
            if run_manager:
                await run_manager.on_llm_new_token("", chunk=chunk)
            yield chunk


def _reply(messages):
    last = messages[-1]
    said = last.content if isinstance(last.content, str) else " ".join(block["type"] for block in last.content)
    count = len(messages)
    usage = {"input_tokens": count, "output_tokens": 3, "total_tokens": count + 3}
    cities = [city for city in ("Oslo", "Rome", "Nowhere") if city in said]
    if isinstance(last, ToolMessage):
        return AIMessage(content=f"It is {said}.", usage_metadata=usage)
    if "weather" in said:
        calls = [{"id": f"call_{count}_{city}", "name": "weather", "args": {"city": city}} for city in cities]
        return AIMessage(content="I look. ", tool_calls=calls, usage_metadata=usage)
    return AIMessage(content=_THOUGHT if said == "think" else f"echo {said} of {count}", usage_metadata=usage)


def _pieces(reply):
    texts = reply.content.split(" ") if isinstance(reply.content, str) else [[block] for block in reply.content]
    for place, text in enumerate(texts):
        last = place == len(texts) - 1
        yield AIMessageChunk(content=text if last or not isinstance(text, str) else f"{text} ")
    for index, call in enumerate(reply.tool_calls):
        arguments = json.dumps(call["args"])
        for name, call_id, piece in (
            (call["name"], call["id"], ""),
            (None, None, arguments[:5]),
            (None, None, arguments[5:]),
        ):
            chunk = {"name": name, "args": piece, "id": call_id, "index": index, "type": "tool_call_chunk"}
            yield AIMessageChunk(content="", tool_call_chunks=[chunk])
    yield AIMessageChunk(content="", usage_metadata=reply.usage_metadata, response_metadata={"finish_reason": "stop"})


@tool
async def weather(city: str) -> str:
    """The weather of a city."""
    get_stream_writer()(f"looking at {city}")
    if city == "Nowhere":
        raise ValueError("no such city")
    return f"3C in {city}"


_ASKS = {"weather": {"allowed_decisions": ["approve", "reject"]}}

agent = create_agent(Words(), [weather])
gated = create_agent(Words(), [weather], middleware=[HumanInTheLoopMiddleware(_ASKS)])
each_call = create_agent(Words(), [weather], middleware=[HumanInTheLoopMiddleware(_ASKS, interrupt_mode="per_call")])


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


async def answer(state: State):
    said = str(state["messages"][-1].content)
    if said == "mail":
        allowed = {"allow_ignore": True, "allow_respond": True, "allow_edit": False, "allow_accept": True}
        request = {"action_request": {"action": "send", "args": {"to": "bob"}}, "config": allowed, "description": "Send it?"}
        text = interrupt([request])[0]["type"]
    elif said == "ask":
        text = interrupt("Which city?")
    elif said == "twice":
        text = f"{interrupt({'question': 'First?'})} and {interrupt({'question': 'Second?'})}"
    elif said == "boom":
        raise ValueError("boom")
    else:
        text = f"plain {said} of {len(state['messages'])}"
    return {"messages": [AIMessage(content=text)]}


def _one_node():
    builder = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile()


async def first(state: State):
    return {"messages": [AIMessage(content=f"first: {interrupt('First?')}")]}


async def second(state: State):
    return {"messages": [AIMessage(content=f"second: {interrupt('Second?')}")]}


async def pay(state: State):
    action = {"name": "pay", "args": {"euros": 3}, "description": "Pay?"}
    config = {"action_name": "pay", "allowed_decisions": ["approve", "reject"]}
    decided = interrupt({"action_requests": [action], "review_configs": [config]})
    return {"messages": [AIMessage(content=f"pay: {decided['decisions'][0]['type']}")]}


def _branches():
    """Three questions at once."""
    builder = StateGraph(State)
    for name, step in (("pay", pay), ("first", first), ("second", second)):
        builder.add_node(name, step)
        builder.add_edge(START, name)
        builder.add_edge(name, END)
    return builder.compile()


def _nested():
    """An agent inside of another graph."""
    builder = StateGraph(State)
    builder.add_node("inner", gated)
    builder.add_edge(START, "inner")
    builder.add_edge("inner", END)
    return builder.compile()


node = _one_node()
nested = _nested()
branches = _branches()
