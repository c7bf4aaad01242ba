"""Exceptions that are over. Law: who has made something of one lets go of what it holds.

The frames of a traceback hold all that their functions knew, a request of megabytes among it; where a variable of one holds
the exception, as asyncio and HTTP clients have it, they would all stay until the garbage collector looks, which counts objects
and not bytes.
"""


def forget(error: BaseException | None) -> None:
    """Takes the tracebacks from it, and from all that led to it."""
    known: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in known:
            known.add(id(one))
            # Some refuse an assignment, as frozen dataclasses do.
            BaseException.with_traceback(one, None)
            waiting += [one.__cause__, one.__context__]
            if isinstance(one, BaseExceptionGroup):
                waiting += one.exceptions
