"""An agent that calls a tool of its own, asks the caller for what is missing, and remembers the conversation."""

import asyncio
from collections.abc import AsyncIterator

from gateway.agent import Artifact, InputRequired, Status, ToolCall, ToolResult, Turn

FORECASTS = {"oslo": (-3, "snow"), "rome": (14, "sun"), "bergen": (6, "rain")}


async def plan(turn: Turn) -> AsyncIterator[str | Artifact | Status | ToolCall | ToolResult]:
    """Takes a message such as `I go to Oslo`. Without a city, it asks for one and goes on with the answer."""
    city = next((word for word in words(turn.text) if word in FORECASTS), turn.state.get("city"))
    if city is None:
        raise InputRequired(f"Where do you go? I know {', '.join(name.title() for name in FORECASTS)}.")
    turn.state["city"] = city

    yield Status(f"looking at the sky over {city.title()}")
    yield ToolCall("forecast", "get_forecast", {"city": city})
    degrees, sky = await get_forecast(city)
    yield ToolResult("forecast", {"degrees": degrees, "sky": sky})

    yield f"In {city.title()} it is {degrees} degrees, with {sky}. "
    yield "Take a warm coat." if degrees < 5 else "A jacket will do."
    yield Artifact([{"data": {"city": city, "degrees": degrees, "sky": sky}}], name="forecast.json")


def words(text: str) -> list[str]:
    return [word.strip(".,!?").lower() for word in text.split()]


async def get_forecast(city: str) -> tuple[int, str]:
    await asyncio.sleep(0)  # a real agent asks a service here
    return FORECASTS[city]
