"""What becomes of the commands on the pages in the tests: each block is run, here or elsewhere, or it says why it cannot be.

Law: a block is known by its page and its first line; each is here, and whatever is here is a block.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tests.interop.cookbook import RECIPES


@dataclass(frozen=True, slots=True)
class Run:
    """The block is run as it stands, by `tests/pages/session.py`.

    before: commands that come first, for what the page takes for granted; after: commands that see whether it has worked.
    configured: the first whole configuration of the page is `gateway.yaml`.
    ports: those of servers that the block starts. codes: with which its commands may end, besides 0.
    needs: a program without which the test is skipped. peer: the one of `.ci/peers.sh` that it needs, in `tests/interop`.
    """

    before: str = ""
    after: str = ""
    configured: bool = False
    ports: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    needs: str = ""
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The block is run by something else, which is named from the root of the project."""

    by: str


@dataclass(frozen=True, slots=True)
class NotRun:
    why: str


Fate: TypeAlias = Run | Elsewhere | NotRun

_BEGUN = "a2a-gateway init"
_USED = 'a2a-gateway init\na2a-gateway serve &\na2a-gateway send "Hello."\n'
_STOPPED = f"{_USED}ended\n"
_RECORDED = 'a2a-gateway init\na2a-gateway serve --record recordings &\na2a-gateway send "Hello."\n'
_UNAVAILABLE = 69
_WAITS = 13
_WAITS_FOR_CONSENT = 14
_MACHINE = NotRun(
    "changes the machine: units, users and files of the system; tests/deploy and tests/interop try the files themselves"
)
_CONTAINERS = NotRun("needs Docker, which the tests do not have; tests/deploy holds the files against their schemas")
_CLUSTER = NotRun("needs a cluster; tests/deploy holds the files against their schemas")
_SERVER = "needs a server of PostgreSQL: "
_AIMOCK = Run(
    before="ln -s $PEERS/aimock/node_modules . && cp tests/interop/peers/aimock/fixtures.json .",
    ports=("4010",),
    peer="aimock",
)
_DIST = Elsewhere("tests/dist/test_installed.py")
_CI = Elsewhere(".ci/run")

BLOCKS: Mapping[str, Mapping[str, Fate]] = {
    "CONTRIBUTING.md": {"make setup": _CI},
    "README.md": {
        "make demo": Elsewhere("tests/gateway/cli/demo/test_demo.py"),
        "make dist": _DIST,
        '.venv/bin/a2a-gateway stream -a responses "What is the weather in Oslo?"': Run(before="a2a-gateway demo"),
        ".venv/bin/a2a-gateway init": Run(after='a2a-gateway send "How many words are these?"'),
    },
    "docs/adapters.md": {
        "pip install path/to/a2a-gateway": Elsewhere("tests/gateway/testing/test_adapter_example.py"),
        "export ECHO_KEY=...": NotRun("needs the reader's own package and service; the example's tests talk to one"),
    },
    "docs/backends/a2a.md": {
        "a2a-gateway serve 'travel=a2a:https://agents.example/travel'": NotRun(
            "agents.example stands for an agent of somebody"
        ),
        "python tests/interop/peers/a2a-sdk/server.py 19110 19111 &": Run(ports=("19110", "19111")),
    },
    "docs/backends/anthropic.md": {
        "ANTHROPIC_API_KEY=sk-ant-... a2a-gateway serve anthropic:claude-sonnet-4-5": Run(),
        "node node_modules/@copilotkit/aimock/dist/cli.js -p 4010 -f fixtures.json &": _AIMOCK,
    },
    "docs/backends/assistants.md": {
        "AZURE_OPENAI_API_KEY=... a2a-gateway serve": Run(),
        ".venv/bin/python -m uvicorn --factory tests.emulators.assistants:app --port 9300 &": Run(ports=("9300",)),
    },
    "docs/backends/copilot-studio.md": {
        "DIRECT_LINE_SECRET=... a2a-gateway serve directline:": Run(),
        "peers/venv/m365-bot/bin/python tests/interop/peers/m365-bot/bot.py 3978 &": Run(
            before="ln -s $PEERS peers", ports=("3978", "3000"), codes=(_WAITS, _WAITS_FOR_CONSENT), peer="m365-bot"
        ),
    },
    "docs/backends/foundry-classic.md": {"FOUNDRY_API_KEY=... a2a-gateway serve": Run()},
    "docs/backends/foundry.md": {
        "FOUNDRY_API_KEY=... a2a-gateway serve": Run(),
        ".venv/bin/python -m uvicorn --factory tests.emulators.foundry:app --port 9400 &": Run(ports=("9400",)),
    },
    "docs/backends/langgraph.md": {
        "a2a-gateway check -c gateway.yaml --live": Run(configured=True, codes=(_UNAVAILABLE,)),
        "pip install 'langgraph-cli[inmem]' langchain": Elsewhere(".ci/peers.sh"),
        "cp tests/interop/peers/langgraph/{graphs.py,langgraph.json} .": Run(
            before="PATH=$PEERS/venv/langgraph/bin:$PATH", ports=("8123",), codes=(_WAITS,), peer="langgraph"
        ),
    },
    "docs/backends/openai.md": {
        "OPENAI_API_KEY=sk-... a2a-gateway serve openai:gpt-5.5": Run(),
        "node node_modules/@copilotkit/aimock/dist/cli.js -p 4010 -f fixtures.json &": _AIMOCK,
    },
    "docs/cards.md": {
        "openssl genpkey": Run(
            after=f"{_BEGUN}\n"
            "echo 'cards: {signing: {keys: [\"${file:card-key.pem}\"]}}' >> gateway.yaml\n"
            "a2a-gateway check",
            needs="openssl",
        )
    },
    "docs/deployment.md": {
        "python3 -m venv /opt/a2a-gateway": _MACHINE,
        "systemctl daemon-reload": _MACHINE,
        "systemd-run --pipe --wait": _MACHINE,
        "install -m 0644 deploy/nginx/a2a-gateway.conf": _MACHINE,
        "install -m 0644 deploy/caddy/Caddyfile": _MACHINE,
        "cd deploy/compose": _CONTAINERS,
        "cd deploy/compose-replicas": _CONTAINERS,
        "kubectl apply -f deploy/kubernetes/namespace.yaml": _CLUSTER,
    },
    "docs/operations.md": {
        "a2a-gateway backends": Run(before=_BEGUN),
        "docker build -t a2a-gateway .": _CONTAINERS,
        'sqlite3 data/gateway.db "UPDATE turn': Run(before=_STOPPED, needs="sqlite3"),
        'sqlite3 data/gateway.db "UPDATE delete_job': Run(before=_STOPPED, needs="sqlite3"),
        'a2a-gateway backup "backup/gateway-$(date +%F).db"': Run(before=_USED),
        "a2a-gateway restore backup/gateway-2026-11-24.db --replace": Run(
            before=f"{_USED}a2a-gateway backup backup/gateway-2026-11-24.db\nended"
        ),
        "a2a-gateway backup backup/gateway-monday.db": NotRun(
            f"{_SERVER}tests/storage/postgres/test_backup.py has one"
        ),
        "pg_dump --format=custom": NotRun(f"{_SERVER}the commands are its own"),
        "a2a-gateway storage copy gateway.yaml new.yaml": Run(
            before=f"{_STOPPED}cp gateway.yaml new.yaml\necho 'storage: {{url: \"sqlite:///new.db\"}}' >> new.yaml"
        ),
    },
    "docs/performance.md": {"make bench": NotRun("takes hours on a machine without other work")},
    "docs/postgres.md": {"pip install 'a2a-gateway[postgres]'": NotRun(f"{_SERVER}tests/dist installs the extra")},
    "docs/protocol.md": {
        "grpcurl -plaintext localhost:50051 list": NotRun(
            "grpcurl is in no registry that the tests reach; tests/interaction asks the same with the libraries of gRPC"
        )
    },
    "docs/python-agents.md": {"a2a-gateway serve -c examples/python-agent/gateway.yaml": Run()},
    "docs/security.md": {"a2a-gateway keys create support-bot": Run(before=_BEGUN)},
    "docs/testing.md": {
        "a2a-gateway serve --record recordings": Run(before=_RECORDED, after='a2a-gateway send "Hello."')
    },
    "examples/dify_adapter/README.md": {
        "DIFY_API_KEY=app-... a2a-gateway serve": NotRun(
            "needs the package of the example, which the tests do not install"
        ),
        "pytest": Elsewhere("tests/gateway/testing/test_adapter_example.py"),
    },
}

PAGES: Mapping[str, Elsewhere] = {
    "docs/first-hour.md": Elsewhere(".ci/first-hour"),
    **{f"docs/clients/{recipe.page}.md": Elsewhere("tests/interop/test_cookbook.py") for recipe in RECIPES},
}
"""Those that one thing runs as a whole."""


def fates(page: str, first: str) -> list[Fate]:
    """What the catalogue says of the block with this first line; one entry, if it is as it has to be."""
    if page in PAGES:
        return [PAGES[page]]
    return [fate for beginning, fate in BLOCKS.get(page, {}).items() if begins(first, beginning)]


def begins(first: str, beginning: str) -> bool:
    """Whether the line begins with these words, all of them whole."""
    return f"{first} ".startswith(f"{beginning} ")
