"""The report of tokens of an answer. Law: within a message a later report replaces an earlier one, number by number; the
messages of one answer are added up.
"""

from gateway.a2a.model import Json


def merged(earlier: Json, later: Json) -> Json:
    """The report of one message. Its numbers only grow."""
    if not isinstance(later, dict):
        return earlier
    before = earlier if isinstance(earlier, dict) else {}
    return {**before, **{name: value for name, value in later.items() if value is not None or name not in before}}


def added(one: Json, other: Json) -> Json:
    """The sum of two reports. What is no number is that of the later report."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: added(one.get(name), other.get(name)) for name in {**one, **other}}
    if type(one) is int and type(other) is int:
        return one + other
    return one if other is None else other
