"""An agent that sends its user to a page first."""

from gateway.agent import AuthRequired, Turn


def reply(turn: Turn) -> str:
    if turn.message == turn.first_message:
        raise AuthRequired("https://login.example/x")
    return "Thank you."
