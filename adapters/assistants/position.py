"""A place in a thread: a run, and in it the step at which it waited. Law: the name of a running call, and the state behind a
completed call, are both made and read here.
"""

import re
from dataclasses import dataclass
from typing import Self

from adapters.http.address import NO_SEGMENTS
from gateway.a2a.model import Json

_THREAD = re.compile(r"thread[_-].+")
_OTHERS = {
    "run": "a run",
    "step": "a step of a run",
    "msg": "a message",
    "asst": "an assistant",
    "call": "a call",
    "file": "a file",
    "assistant": "a file",
    "vs": "a vector store",
    "resp": "a response",
    "conv": "a conversation of the Responses API",
}
_OTHER = re.compile(rf"({'|'.join(_OTHERS)})[_-].+")


@dataclass(frozen=True, slots=True)
class Position:
    """`step` is the step with the calls whose outcomes the run waits for, or waited for; "" at the beginning of a run."""

    run: str
    step: str = ""

    @classmethod
    def named(cls, name: str) -> Self:
        return cls(*name.split("/", 1))

    @property
    def name(self) -> str:
        """The name of the call that goes on from here."""
        return f"{self.run}/{self.step}" if self.step else self.run


@dataclass(frozen=True, slots=True)
class LastCall:
    """The last completed call of a thread. `waits`: its run waits for outcomes."""

    at: Position
    waits: bool

    @classmethod
    def read(cls, state: Json) -> Self | None:
        match state:
            case {"run": str(run), "step": str(step)}:
                return cls(Position(run, step), waits=True)
            case {"run": str(run)}:
                return cls(Position(run), waits=False)
        return None

    @property
    def state(self) -> Json:
        return {"run": self.at.run, "step": self.at.step} if self.waits else {"run": self.at.run}


def is_thread_id(text: str) -> bool:
    """Whether the text has the form that the ids of threads have at OpenAI and Azure."""
    return _THREAD.fullmatch(text) is not None


def check_thread_id(handle: str) -> None:
    """Raises: ValueError for an id of something else."""
    needed = "the id of a thread (thread_...), in which this agent goes on"
    if not is_thread_id(handle) and (known := _OTHER.fullmatch(handle)):
        raise ValueError(f"is {_OTHERS[known[1]]}, and not {needed}")
    if handle in NO_SEGMENTS or any(character.isspace() or character == "/" for character in handle):
        raise ValueError(f"is not {needed}")
