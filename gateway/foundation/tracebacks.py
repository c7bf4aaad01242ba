"""Tracebacks of exceptions that were dealt with. Law: code that turns an exception into something else releases its frames.

The frames of a traceback hold all local variables of their functions, a request of megabytes among them. Where one of these
variables is the exception itself, as in asyncio and HTTP clients, the frames would stay until the garbage collector runs,
and the collector counts objects, not bytes.
"""


def drop_tracebacks(error: BaseException | None) -> None:
    """Removes the tracebacks of the error and of all that led to it."""
    known: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in known:
            known.add(id(one))
            # Some errors refuse an assignment, as frozen dataclasses do.
            BaseException.with_traceback(one, None)
            waiting += [one.__cause__, one.__context__]
            if isinstance(one, BaseExceptionGroup):
                waiting += one.exceptions
