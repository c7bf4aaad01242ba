"""The official clients, each with what it is asked to do in front of a gateway and what it must see.

Law: a client makes every check over each of its transports; what its own interface has no way to do is in `cannot`, and what it
shows otherwise than the others in `shows`, both with the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tests.interop.clients_agent import PARTS
from tests.interop.echo_agent import knows

Seen: TypeAlias = Mapping[str, Any]

PEERS = Path(__file__).parent / "peers"
NAME, DESCRIPTION, SKILL = "Peer", "Repeats what was said.", "repeat"

_PIECES = ["You ", "said ", "one ", "two ", "three."]

CHECKS: Mapping[str, str] = {
    "card": "reads the card",
    "send": "sends a message and gets the ended task",
    "stream": "reads the answer as it comes",
    "turns": "goes on with a context in a second task",
    "question": "gets a question (input required) and answers it in the same task",
    "sent": "sends two files, one as bytes and one by its address, and data",
    "given": "is given two files and data",
    "cancel": "cancels a task in the middle of its stream",
    "failure": "is told that a task failed, and no more than callers may know",
    "error": "asks for an unknown task, and gets the error as one of its own",
    "refusal": "wants the answer to a message as a stream, is refused, and gets the error as one of its own",
}

EXPECTED: Mapping[str, Seen] = {
    "card": {"name": NAME, "description": DESCRIPTION, "skills": [SKILL], "streaming": True},
    "send": {"text": knows("one"), "state": "completed"},
    "stream": {"pieces": _PIECES, "state": "completed"},
    "turns": {"texts": [knows("one"), knows("one", "two")], "same_context": True, "same_task": False},
    "question": {
        "question": "Which city?",
        "waiting": "input-required",
        "text": knows("ask", "Oslo"),
        "state": "completed",
        "same_task": True,
    },
    "sent": {"parts": PARTS},
    "given": {"parts": PARTS},
    "cancel": {"seen": "before ", "state": "canceled", "streamed": "canceled"},
    "failure": {"state": "failed", "message": "The agent's backend failed."},
    "error": {"error": "TaskNotFoundError"},
    "refusal": {"error": "TaskNotFoundError"},
}


@dataclass(frozen=True, slots=True)
class Otherwise:
    """Members that replace those of what is expected, and why; None: the client has no such thing to show."""

    why: str
    seen: Seen


@dataclass(frozen=True, slots=True)
class Client:
    """`package` and `version` as its registry has them, `peer` its folder in `peers/`, `protocol` the version of A2A it speaks.

    `cannot` and `shows` are by check. A client whose transports differ has a row for each.
    """

    package: str
    version: str
    peer: str
    protocol: str
    transports: tuple[str, ...]
    cannot: Mapping[str, str] = field(default_factory=dict)
    shows: Mapping[str, Otherwise] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.package} {self.version}"

    @property
    def checks(self) -> list[str]:
        return [check for check in CHECKS if check not in self.cannot]

    def expected(self, check: str) -> Seen:
        return {**EXPECTED[check], **(self.shows[check].seen if check in self.shows else {})}


_BY_CODE = "gives the error by the class of all JSON-RPC errors, with code and text"
_BY_STATUS = "gives the error by the class of all HTTP errors, with the status"
_HEADLESS = "has no way to cancel a task"
_TASKLESS = "has no way to ask for a task"
_NO_FILENAMES = [{key: value for key, value in part.items() if key != "filename"} for part in PARTS]
_TWICE = "UVNCdWIzUmxMZz09"


def _spaced(*said: str) -> str:
    return knows(*said).replace(" ", "  ")


CLIENTS = (
    Client("a2a-sdk", "1.3.0", "a2a-sdk", "1.0", ("JSONRPC", "HTTP+JSON", "GRPC")),
    Client("@a2a-js/sdk", "1.3.0", "a2a-js", "1.0", ("JSONRPC", "HTTP+JSON", "GRPC")),
    Client(
        "google-adk",
        "2.13.0",
        "adk",
        "1.0",
        ("JSONRPC", "HTTP+JSON"),
        cannot={"cancel": _HEADLESS, "error": _TASKLESS},
        shows={
            "card": Otherwise(
                "shows the description alone, in a quotation",
                {
                    "name": None,
                    "description": f"<<<BEGIN_QUOTED_AGENT_CONTENT>>>\n{DESCRIPTION}\n<<<END_QUOTED_AGENT_CONTENT>>>",
                    "skills": None,
                    "streaming": None,
                },
            ),
            "sent": Otherwise(
                "marks each part in its metadata as the user's own",
                {"parts": [{**part, "metadata": {"is_user_input": True}} for part in PARTS]},
            ),
            "refusal": Otherwise(
                "cannot name a task, so it sends an image to an agent that takes none; gives the text of the error",
                {
                    "error": "A2A request failed: message.parts[0]: 'image/png' is not taken; "
                    "this agent knows text/plain, application/pdf, application/json"
                },
            ),
        },
    ),
    Client(
        "agent-framework-a2a",
        "1.0.0b261022",
        "agent-framework",
        "1.0",
        ("JSONRPC", "HTTP+JSON"),
        cannot={"cancel": _HEADLESS},
        shows={
            "sent": Otherwise(
                "has no content that is data and no names of files; adds empty metadata to each part",
                {"parts": [{**part, "metadata": {}} for part in _NO_FILENAMES[:2]]},
            ),
            "given": Otherwise("shows data as a text of JSON, and no names of files", {"parts": _NO_FILENAMES}),
            "failure": Otherwise(
                "says why in a stream; without one it shows the last message of the history, which is its user's own",
                {},
            ),
        },
    ),
    Client(
        "a2a-sdk",
        "0.3.26",
        "a2a-sdk-0.3",
        "0.3",
        ("JSONRPC",),
        shows={check: Otherwise(_BY_CODE, {"error": "A2AClientJSONRPCError"}) for check in ("error", "refusal")},
    ),
    Client(
        "a2a-sdk",
        "0.3.26",
        "a2a-sdk-0.3",
        "0.3",
        ("HTTP+JSON",),
        shows={check: Otherwise(_BY_STATUS, {"error": "A2AClientHTTPError"}) for check in ("error", "refusal")},
    ),
    Client("@a2a-js/sdk", "0.3.14", "a2a-js-0.3", "0.3", ("JSONRPC",)),
    Client(
        "@a2a-js/sdk",
        "0.3.14",
        "a2a-js-0.3",
        "0.3",
        ("HTTP+JSON",),
        shows={
            "sent": Otherwise("does not send the names of files", {"parts": _NO_FILENAMES}),
            "given": Otherwise(
                "shows no names of files, and the bytes of a file in base64 twice ([why](protocol.md))",
                {"parts": [{**part, **({"raw": _TWICE} if "raw" in part else {})} for part in _NO_FILENAMES]},
            ),
        },
    ),
    Client(
        "strands-agents",
        "1.62.0",
        "strands",
        "0.3",
        ("JSONRPC",),
        cannot={
            "turns": "names neither a context nor a task in what it sends",
            "sent": "sends text only",
            "cancel": _HEADLESS,
            "error": _TASKLESS,
        },
        shows={
            "question": Otherwise(
                "is told the question, and cannot answer it in the same task",
                {"text": None, "state": None, "same_task": None},
            ),
            "refusal": Otherwise(
                f"cannot name a task, so it sends a message without parts; {_BY_CODE}",
                {"error": "A2AClientJSONRPCError"},
            ),
        },
    ),
    Client(
        "beeai-framework",
        "0.1.85",
        "beeai",
        "0.3",
        ("JSONRPC",),
        cannot={"cancel": _HEADLESS, "error": _TASKLESS},
        shows={
            "refusal": Otherwise(
                f"has an error of its own around another: {_BY_CODE}", {"error": "A2AClientJSONRPCError"}
            )
        },
    ),
    Client(
        "crewai",
        "1.15.30",
        "crewai",
        "0.3",
        ("JSONRPC",),
        cannot={
            "sent": "sends text only where an agent delegates by itself",
            "given": "shows texts only",
            "cancel": _HEADLESS,
            "error": _TASKLESS,
        },
        shows={
            "send": Otherwise("joins the pieces of an answer with spaces", {"text": _spaced("one")}),
            "stream": Otherwise("tells the size of each piece", {"pieces": [len(piece) for piece in _PIECES]}),
            "turns": Otherwise(
                "joins the pieces of an answer with spaces", {"texts": [_spaced("one"), _spaced("one", "two")]}
            ),
            "question": Otherwise("joins the pieces of an answer with spaces", {"text": _spaced("ask", "Oslo")}),
            "refusal": Otherwise(
                "cannot name a task, so it wants an image from an agent that makes none; gives the error as a text",
                {"error": "A2AClientJSONRPCError"},
            ),
        },
    ),
)
