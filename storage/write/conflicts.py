"""A statement that the constraints of the ledger refuse, in words. Law: a text names what has changed, not the constraint,
where it is known."""

from gateway.ledger.errors import Conflict
from storage import compiled
from storage.statement import Statement

_WORDS = {
    # Its number is NULL unless it follows the last one and the turn is still that of the process.
    compiled.NEW_EVENTS.name: "the log has gone on, or the turn is not this process's any more",
}


def conflict(statement: Statement, error: Exception) -> Conflict:
    found = Conflict(f"could not {statement.what}: {_WORDS.get(statement.name, error)}")
    found.__cause__ = error
    return found
