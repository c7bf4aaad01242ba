"""Functions as agents under test: their adapters, and the outcomes of calls."""

import sys
from types import ModuleType
from typing import Any

from adapters.python.function import PythonFunction, PythonSettings
from gateway.foundation.clock import Clock
from gateway.ports.adapter import Adapter, AdapterEvent, CallStarted, ErrorClass
from gateway.testing.adapter_scripts import collect, completed, failure, request

made: list[PythonFunction] = []
"""What `agent_of` has made in this test."""


def agent_of(function: object, clock: Clock | None = None, **settings: Any) -> PythonFunction:
    """An adapter for this function, as if it stood in a module."""
    module = ModuleType("agent_under_test")
    module.__dict__["agent"] = function
    path = list(sys.path)
    sys.modules[module.__name__] = module
    try:
        made.append(PythonFunction(PythonSettings(ref="agent_under_test:agent", **settings), clock))
        return made[-1]
    finally:
        del sys.modules[module.__name__]
        sys.path[:] = path


async def events_of(adapter: Adapter, **changes: Any) -> list[AdapterEvent]:
    """The events between the start of a call and its completion."""
    events = await collect(adapter, request("Hi", **changes))
    assert events[0] == CallStarted()
    completed(events)
    return events[1:-1]


async def broken(adapter: Adapter) -> str:
    """The detail of a call that breaks the contract."""
    error = await failure(adapter)
    assert error.kind is ErrorClass.CONTRACT_BROKEN
    return error.detail
