"""How each client is used: a row of this table, a file of `examples/clients`, and the page that `make pages` writes of both.

Law: what a page shows is the file as it is, and what it has said to `examples/python-agent`; `test_cookbook.py` runs each.
"""

from dataclasses import dataclass

from tests.interop.clients import CLIENTS, Client

_ASKED = ("What do I pack?", "Oslo", "And tomorrow?")
_TOLD = ("I go to Oslo", "And tomorrow?")
_WHERE = "Where do you go? I know Oslo, Rome, Bergen.\n"
_OSLO = "In Oslo it is -3 degrees, with snow. Take a warm coat.\n"


@dataclass(frozen=True, slots=True)
class Recipe:
    """`page` in `docs/clients`, `example` in `examples/clients`; `package` as `tests/interop/clients.py` names it, or empty.

    peer: the one of `.ci/peers.sh` that has its packages, or empty. says: the messages; shows: what it prints, or empty where
    that is other each time. words: what its reader has to know, in Markdown.
    """

    page: str
    title: str
    example: str
    says: tuple[str, ...]
    shows: str
    package: str = ""
    peer: str = ""
    words: str = ""

    @property
    def program(self) -> str:
        return {"py": "python", "mjs": "node", "sh": "sh"}[self.example.rpartition(".")[2]]

    @property
    def clients(self) -> list[Client]:
        """Its rows among the clients that are tested: one, or one for each transport."""
        return [client for client in CLIENTS if client.package == self.package and client.peer == self.peer]


RECIPES = (
    Recipe(
        "a2a-sdk",
        "a2a-sdk: the official client for Python",
        "a2a_sdk.py",
        _ASKED,
        _WHERE + 2 * _OSLO,
        "a2a-sdk",
        "a2a-sdk",
    ),
    Recipe(
        "a2a-sdk-0.3",
        "a2a-sdk 0.3: the official client for Python, of A2A 0.3",
        "a2a_sdk_0_3.py",
        _ASKED,
        _WHERE + 2 * _OSLO,
        "a2a-sdk",
        "a2a-sdk-0.3",
    ),
    Recipe(
        "a2a-js",
        "@a2a-js/sdk: the official client for JavaScript",
        "a2a_js.mjs",
        _ASKED,
        _WHERE + 2 * _OSLO,
        "@a2a-js/sdk",
        "a2a-js",
    ),
    Recipe(
        "a2a-js-0.3",
        "@a2a-js/sdk 0.3: the official client for JavaScript, of A2A 0.3",
        "a2a_js_0_3.mjs",
        _ASKED,
        _WHERE + 2 * _OSLO,
        "@a2a-js/sdk",
        "a2a-js-0.3",
    ),
    Recipe(
        "google-adk",
        "Google ADK",
        "google_adk_client.py",
        _TOLD,
        2 * _OSLO,
        "google-adk",
        "adk",
        "A question of the agent (`INPUT_REQUIRED`) comes as a call of a long-running function, with the question in its\n"
        "arguments; the answer is a `FunctionResponse` to that call. ADK takes no card with an address of gRPC: where\n"
        "`server.grpc` is on, give it an agent of another gateway.",
    ),
    Recipe(
        "agent-framework",
        "Microsoft Agent Framework",
        "agent_framework_client.py",
        _ASKED,
        _WHERE + 2 * _OSLO,
        "agent-framework-a2a",
        "agent-framework",
    ),
    Recipe(
        "strands",
        "Strands Agents",
        "strands_client.py",
        ("I go to Oslo", "And to Rome"),
        _OSLO + "In Rome it is 14 degrees, with sun. A jacket will do.\n",
        "strands-agents",
        "strands",
        "It names no context, so that each message begins a conversation, and a question cannot be answered.",
    ),
    Recipe("beeai", "BeeAI Framework", "beeai_client.py", _TOLD, 2 * _OSLO, "beeai-framework", "beeai"),
    Recipe(
        "crewai",
        "CrewAI",
        "crewai_client.py",
        ("I go to Oslo",),
        "looking at the sky over Oslo In Oslo it is -3 degrees, with snow.  Take a warm coat.\n",
        "crewai",
        "crewai",
        "CrewAI talks to another agent when the model of its own agent says so; in the example a script stands in for the\n"
        "model. What the other agent tells of its work stands before its answer.",
    ),
    Recipe(
        "fetch",
        "JavaScript without a library",
        "client.mjs",
        _ASKED,
        _WHERE + 2 * _OSLO,
        words="All of A2A that a client needs: one request, an event stream, and, where a connection broke, `Last-Event-ID`.",
    ),
    Recipe(
        "curl",
        "curl",
        "curl.sh",
        ("I go to Oslo",),
        "",
        words="HTTP+JSON by hand. `a2a-gateway demo` prints the same for JSON-RPC.",
    ),
)
