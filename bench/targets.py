"""What can be measured: how to start each target, where it listens, what it can do.

`cmd` is started with {port}, {here} (this folder), {other} (the checkout that $BENCH_OTHER names), {db} (a fresh database path), {pg}
(the URL of a fresh database on the run's PostgreSQL; {pg_sqlalchemy} for SQLAlchemy) and {workers} filled in, and {py:NAME} by the python of the virtual environment NAME under $BENCH_VENVS.
A target without `cmd` is already running and is named on the command line (bench.py --url).
"""
import os
import pathlib

HERE = pathlib.Path(__file__).parent
VENVS = pathlib.Path(os.environ.get("BENCH_VENVS", HERE.parent / "venvs"))

UVICORN = "{py:%s} -m uvicorn %s:app --app-dir {here}/%s --host 127.0.0.1 --port {port} --workers {workers} --no-access-log --log-level warning --backlog 4096"
ALL = {"send", "stream", "get", "list", "subscribe", "context"}


KEY = "sk-5d1c9a7be03f42d68c1e7f90ab34d2c85e6f7a1b9c0d3e4f"  # LiteLLM insists on one
LITELLM = {"cmd": "{py:litellm} {here}/peers/litellm_run.py {port} {workers}", "caps": {"send", "stream"},
           "env": {"BENCH_KEY": KEY}, "headers": {"Authorization": f"Bearer {KEY}"}}  # fmt: skip


def uvicorn(venv, module, folder="peers", extra=""):
    return UVICORN % (venv, module, folder) + extra


def skeleton(**env):
    return {
        "cmd": uvicorn("stack", "skeleton", "stack"),
        "env": {"BENCH_DB": "{db}", **{f"SK_{k.upper()}": v for k, v in env.items()}},
        "caps": {"send", "stream", "get"},
    }


TARGETS = {
    # the limits
    "direct": {"port": "backend", "path": "/a2a", "caps": {"send", "stream"}, "about": "no gateway: the mock speaks A2A itself"},
    "nginx": {"cmd": "nginx -e stderr -p {tmp} -c {here}/stack/nginx.conf", "path": "/a2a", "caps": {"send", "stream"},
              "about": "compiled pass-through proxy, no translation"},  # fmt: skip
    "floor": {"cmd": "{py:stack} {here}/stack/floor.py {port}", "caps": {"send", "stream", "get"}, "about": "raw asyncio protocols, uvloop"},
    "floor-durable": {"cmd": "{py:stack} {here}/stack/floor_durable.py {port}", "env": {"BENCH_DB": "{db}"}, "caps": {"send", "stream"},
                      "about": "the floor; what a caller is shown is a row on disk before"},  # fmt: skip
    # this project
    "gateway": {"cmd": "{root}/.venv/bin/a2a-gateway serve -c {here}/gateway.yaml", "path": "/a2a/bench", "env": {"BENCH_DB": "{db}"},
                "caps": ALL | {"0.3"}, "about": "A2A Gateway, durable SQLite log on"},  # fmt: skip
    "gateway-pg": {"cmd": "{root}/.venv/bin/a2a-gateway serve -c {here}/gateway.yaml", "path": "/a2a/bench", "caps": ALL | {"postgres", "replicas"},
                   "env": {"BENCH_DB": "{db}", "A2A_GATEWAY__STORAGE__URL": "{pg}"}, "about": "the same on PostgreSQL"},  # fmt: skip
    "gateway-pg-workers": {"cmd": "{root}/.venv/bin/a2a-gateway serve -c {here}/gateway.yaml --workers 2", "path": "/a2a/bench", "caps": ALL | {"postgres"},
                           "env": {"BENCH_DB": "{db}", "A2A_GATEWAY__STORAGE__URL": "{pg}"}, "about": "two workers on PostgreSQL"},  # fmt: skip
    "gateway-grpc": {"cmd": "{root}/.venv/bin/a2a-gateway serve -c {here}/gateway.yaml", "path": "/a2a/bench", "tenant": "bench", "caps": {"grpc"},
                     "env": {"BENCH_DB": "{db}", "A2A_GATEWAY__SERVER__GRPC__PORT": "{grpc}"}, "about": "the same with its gRPC port, and nothing else"},  # fmt: skip
    "gateway-other": {"cmd": "{other}/.venv/bin/a2a-gateway serve -c {here}/gateway.yaml", "path": "/a2a/bench", "env": {"BENCH_DB": "{db}"}, "caps": ALL,
                      "about": "the gateway of another checkout, $BENCH_OTHER, to compare two versions in one run"},  # fmt: skip
    "gateway-local": {"cmd": "{root}/.venv/bin/a2a-gateway serve -c {here}/gateway.yaml", "path": "/a2a/local", "env": {"BENCH_DB": "{db}"}, "caps": ALL,
                      "about": "the same; the gateway keeps the conversations and sends the last 20 messages"},  # fmt: skip
    "gateway-tools": {"cmd": "{root}/.venv/bin/a2a-gateway serve -c {here}/gateway.yaml", "path": "/a2a/tools", "env": {"BENCH_DB": "{db}"},
                      "caps": ALL | {"tools"}, "about": "the same, with a tool that the gateway runs"},  # fmt: skip
    "gateway-python": {"cmd": "{root}/.venv/bin/a2a-gateway serve -c {here}/python.yaml", "path": "/a2a/python", "env": {"BENCH_DB": "{db}"},
                       "caps": {"function"}, "about": "an agent that is a Python function, on a loop of its own"},  # fmt: skip
    "gateway-process": {"cmd": "{root}/.venv/bin/a2a-gateway serve -c {here}/python.yaml", "path": "/a2a/python", "caps": {"function"},
                        "env": {"BENCH_DB": "{db}", "A2A_GATEWAY__AGENTS__PYTHON__RUN_IN": "process"}, "about": "the same, in a process of its own"},  # fmt: skip
    "gateway-python-other": {"cmd": "{other}/.venv/bin/a2a-gateway serve -c {here}/python.yaml", "path": "/a2a/python", "env": {"BENCH_DB": "{db}"},
                             "caps": {"function"}, "about": "the function at the gateway of another checkout, $BENCH_OTHER"},  # fmt: skip
    "gateway-a2a": {"cmd": "{root}/.venv/bin/a2a-gateway serve -c {here}/adapters.yaml", "path": "/a2a/a2a", "env": {"BENCH_DB": "{db}"}, "caps": {"a2a"},
                    "about": "in front of an A2A agent"},  # fmt: skip
    "gateway-langgraph": {"cmd": "{root}/.venv/bin/a2a-gateway serve -c {here}/adapters.yaml", "path": "/a2a/langgraph", "env": {"BENCH_DB": "{db}"},
                          "caps": {"langgraph"}, "about": "in front of a LangGraph Agent Server"},  # fmt: skip
    # peers
    "a2a-sdk": {"cmd": uvicorn("a2a", "a2a_sdk_server"), "caps": ALL, "about": "a2a-sdk, InMemoryTaskStore"},
    "a2a-sdk-grpc": {"cmd": "{py:a2a} {here}/peers/a2a_sdk_grpc_server.py {port}", "caps": {"grpc"}, "about": "a2a-sdk's gRPC server"},
    "a2a-sdk-sqlite": {"cmd": uvicorn("a2a", "a2a_sdk_server"), "env": {"BENCH_STORE": "sqlite", "BENCH_DB": "{db}"}, "caps": ALL,
                       "about": "a2a-sdk, DatabaseTaskStore on sqlite+aiosqlite"},  # fmt: skip
    "a2a-sdk-pg": {"cmd": uvicorn("a2a", "a2a_sdk_server"), "caps": ALL | {"postgres"},
                   "env": {"BENCH_STORE": "postgres", "BENCH_DB": "{pg_sqlalchemy}"},
                   "about": "a2a-sdk, DatabaseTaskStore on postgresql+asyncpg"},  # fmt: skip
    "a2a-sdk-cluster": {"cmd": uvicorn("a2a", "a2a_sdk_server"), "caps": ALL | {"postgres", "replicas"},
                        "env": {"BENCH_STORE": "cluster", "BENCH_DB": "{pg_sqlalchemy}"},
                        "about": "a2a-sdk, VersionedDatabaseTaskStore and DatabaseTaskEventStream on postgresql+asyncpg"},  # fmt: skip
    "a2a-sdk-aio": {"cmd": uvicorn("a2a", "a2a_sdk_server"), "env": {"BENCH_CLIENT": "aiohttp"}, "caps": ALL,
                    "about": "a2a-sdk, InMemoryTaskStore, executor on aiohttp instead of httpx"},  # fmt: skip
    "a2a-sdk-tuned": {"cmd": uvicorn("a2a", "a2a_sdk_server"), "caps": ALL, "about": "a2a-sdk-aio with its tracing switched off: its best",
                      "env": {"BENCH_CLIENT": "aiohttp", "OTEL_INSTRUMENTATION_A2A_SDK_ENABLED": "false"}},  # fmt: skip
    "a2a-proxy": {"cmd": uvicorn("a2a", "a2a_proxy"), "caps": {"a2a"}, "about": "a2a-sdk's client behind a2a-sdk's server"},
    "a2a-proxy-tuned": {"cmd": uvicorn("a2a", "a2a_proxy"), "caps": {"a2a"}, "env": {"OTEL_INSTRUMENTATION_A2A_SDK_ENABLED": "false"},
                        "about": "the same with its tracing switched off"},  # fmt: skip
    "langgraph-proxy": {"cmd": uvicorn("a2a", "langgraph_proxy"), "caps": {"langgraph"}, "about": "langgraph-sdk behind a2a-sdk's server"},
    "langgraph-proxy-tuned": {"cmd": uvicorn("a2a", "langgraph_proxy"), "caps": {"langgraph"}, "env": {"OTEL_INSTRUMENTATION_A2A_SDK_ENABLED": "false"},
                              "about": "the same with its tracing switched off"},  # fmt: skip
    "fasta2a": {"cmd": uvicorn("fasta2a", "fasta2a_server"), "caps": {"stream", "get", "context"}, "about": "fasta2a as shipped: one task at a time"},
    "fasta2a-256": {"cmd": uvicorn("fasta2a", "fasta2a_server"), "env": {"BENCH_WORKERS": "256"}, "caps": {"stream", "get", "subscribe", "context"},
                   "about": "fasta2a with 256 worker loops"},  # fmt: skip
    "fasta2a-aio": {"cmd": uvicorn("fasta2a", "fasta2a_server"), "env": {"BENCH_WORKERS": "256", "BENCH_CLIENT": "aiohttp"},
                    "caps": {"stream", "get", "subscribe", "context"}, "about": "fasta2a with 256 worker loops, worker on aiohttp instead of httpx"},  # fmt: skip
    "litellm-bridge": {**LITELLM, "path": "/a2a/bridge", "send_ok": '"parts"', "about": "LiteLLM A2A completion bridge"},  # fmt: skip
    "litellm-a2a": {**LITELLM, "path": "/a2a/upstream", "about": "LiteLLM A2A gateway in front of an A2A agent (the mock)"},  # fmt: skip
    "adk": {"cmd": uvicorn("adk", "adk_server"), "caps": ALL, "about": "google-adk to_a2a over LiteLlm (its default: no text streaming)"},
    "adk-sse": {"cmd": uvicorn("adk", "adk_server"), "env": {"BENCH_STREAM": "1"}, "caps": ALL, "about": "google-adk with StreamingMode.SSE"},
    "maf": {"cmd": uvicorn("maf", "maf_server"), "caps": ALL, "about": "Microsoft agent-framework A2AExecutor(stream=True)"},
    # stack choices: `sk` is uvicorn (uvloop, httptools), Starlette StreamingResponse, aiohttp,
    # orjson; every other one changes one thing, but for the last three
    "sk": skeleton(),
    "sk-c-httpx": skeleton(client="httpx"),
    "sk-c-httpx2": skeleton(client="httpx2"),
    "sk-c-httpx-aiohttp": skeleton(client="httpx-aiohttp"),
    "sk-c-pyreqwest": skeleton(client="pyreqwest"),
    "sk-c-niquests": skeleton(client="niquests"),
    "sk-c-curl_cffi": skeleton(client="curl_cffi"),
    "sk-c-raw": skeleton(client="raw"),
    "sk-j-json": skeleton(json="json"),
    "sk-j-msgspec": skeleton(json="msgspec"),
    "sk-j-pydantic": skeleton(json="pydantic"),
    "sk-j-protobuf": skeleton(json="protobuf"),
    "sk-j-template": skeleton(json="template"),
    "sk-s-sse-starlette": skeleton(sse="sse-starlette"),
    "sk-s-coalesce": skeleton(coalesce="1"),
    "sk-s-asgi": skeleton(sse="asgi"),
    "sk-w-h11": {**skeleton(), "cmd": uvicorn("stack", "skeleton", "stack", " --http h11 --loop uvloop")},
    "sk-w-asyncio": {**skeleton(), "cmd": uvicorn("stack", "skeleton", "stack", " --http httptools --loop asyncio")},
    "sk-w-granian": {**skeleton(), "cmd": "{py:stack} -m granian --interface asgi --host 127.0.0.1 --port {port} --workers {workers} --loop uvloop "
                     "--no-access-log --log-level warning --working-dir {here}/stack skeleton:app"},  # fmt: skip
    "sk-w-hypercorn": {**skeleton(), "cmd": "{py:stack} -m hypercorn --worker-class uvloop --workers {workers} -b 127.0.0.1:{port} --log-level warning "
                       "--backlog 4096 skeleton:app", "cwd": "stack"},  # fmt: skip
    "sk-py311": {**skeleton(), "cmd": uvicorn("py311", "skeleton", "stack")},  # other interpreters, see setup.sh
    "sk-py312": {**skeleton(), "cmd": uvicorn("py312", "skeleton", "stack")},
    "sk-pydeb311": {**skeleton(), "cmd": uvicorn("pydeb311", "skeleton", "stack")},
    "sk-card": skeleton(client="httpx", sse="sse-starlette", json="json"),  # the packages of the design card
    "sk-best": skeleton(json="template", coalesce="1", sse="asgi"),
    "sk-best-task": skeleton(json="template", coalesce="1", sse="asgi", store="task"),
    "sk-best-events": skeleton(json="template", coalesce="1", sse="asgi", store="events"),
    "sk-best-raw": skeleton(client="raw", json="template", coalesce="1", sse="asgi"),
}
for number, (name, target) in enumerate(TARGETS.items()):
    target.setdefault("port", 9200 + number)
    target.setdefault("path", "/")
    target.setdefault("flavor", "v1")
    target["name"] = name
