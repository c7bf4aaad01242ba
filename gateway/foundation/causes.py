"""What led to an error."""

from collections.abc import Iterator


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it, the latest first, each once. Of a group of errors its members as well: a host with several
    addresses gives one for each."""
    known: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting:
        one = waiting.pop()
        if id(one) in known:
            continue
        known.add(id(one))
        yield one
        before = one.__cause__ or one.__context__
        if before is not None:
            waiting.append(before)
        if isinstance(one, BaseExceptionGroup):
            waiting += reversed(one.exceptions)
