"""The access log as an observer: a line for each request and for each turn, where they are wanted."""

from gateway.foundation.access_log import AccessLog
from gateway.ports.observer import Observer, RequestLine, TurnLine


class AccessLines(Observer):
    __slots__ = ("_access", "_requests", "_turns")

    def __init__(self, access: AccessLog, *, requests: bool, turns: bool) -> None:
        self._access = access
        self._requests = requests
        self._turns = turns

    def request_ended(self, line: RequestLine) -> None:
        if self._requests:
            self._access.add(line)

    def turn_ended(self, line: TurnLine) -> None:
        if self._turns:
            self._access.add(line)
