"""Where a function runs, as its settings say."""

from collections.abc import Callable

from adapters.python.process_host import ProcessHost
from adapters.python.reference import FunctionSettings
from adapters.python.thread_host import ThreadHost
from adapters.python.worker import Service


def host_of(settings: FunctionSettings, service: Callable[[], Service]) -> ThreadHost | ProcessHost:
    """`service` loads the function in this process. Raises: ValueError when there is no such function. One that runs in a
    process is looked for there."""
    if settings.run_in == "process":
        settings.check_place()
        return ProcessHost(settings.owner, settings.begin())
    return ThreadHost(settings, service())
