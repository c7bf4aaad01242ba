"""Values far over every bound, in each setting that is a duration, a size or a number, also those of types."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from gateway.config.json_schema import schema
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid
from gateway.testing.serving import serve
from storage.postgres.settings import PostgresSettings
from tests.a2a_client import A2A, a2a_http, text_of
from tests.emulators.chat import ChatServer
from tests.emulators.scripts import Call, Say, in_rounds
from tests.running import local_gateway

Path_: TypeAlias = tuple[str | int, ...]
REQUIRED: dict[str, dict[str, dict[str, Any]]] = {
    "agents": {
        "openai-chat": {"model": "m"},
        "openai-responses": {"model": "m", "api_key": "k"},
        "python": {"ref": "gateway.cli.demo.agent:reply"},
    },
    "tools": {
        "http": {"url": "http://localhost/", "description": "d"},
        "mcp": {"command": ["cat"]},
        "python": {"ref": "m:f"},
    },
}
BASE: dict[str, Any] = {"version": 1, "agents": {"a": {"type": "python", **REQUIRED["agents"]["python"]}}}
MARK = "@@"


def leaves(node: Any, whole: Any, path: Path_ = ()) -> Iterator[tuple[Path_, str]]:
    """Each setting whose text or number has a bound, and which of the three it is."""
    if "$ref" in node:
        yield from leaves(whole["$defs"][node["$ref"].rpartition("/")[2]], whole, path)
    for one in node.get("anyOf", ()):
        yield from leaves(one, whole, path)
    pattern = node.get("pattern", "")
    if "KiB" in pattern:
        yield path, "size"
    elif "ms|s" in pattern:
        yield path, "duration"
    elif node.get("type") in ("integer", "number") and "const" not in node:
        yield path, "number"
    for name, below in node.get("properties", {}).items():
        yield from leaves(below, whole, (*path, name))
    if isinstance(node.get("items"), dict):
        yield from leaves(node["items"], whole, (*path, 0))


def settings() -> Iterator[tuple[Path_, str, str]]:
    """The path of each such setting, its kind, and the type of the entry that it belongs to."""
    whole = schema(Registry())
    sections = {name: below for name, below in whole["properties"].items() if name not in REQUIRED}
    yield from ((path, kind, "") for path, kind in leaves({"properties": sections}, whole))
    for section, types in REQUIRED.items():
        for name in types:
            found = dict.fromkeys(leaves(whole["$defs"][f"{section.removesuffix('s')}:{name}"], whole, (section, "x")))
            yield from ((path, kind, name) for path, kind in found)


SETTINGS = list(settings())


def document(path: Path_, kind: str, value: str) -> str:
    """A configuration that has this value there."""
    data: Any = json.loads(json.dumps(BASE))
    if path[0] in REQUIRED:
        section = str(path[0])
        data.setdefault(section, {})["x"] = {"type": kind, **REQUIRED[section][kind]}
    if path[0] == "storage":
        kind = "postgresql://localhost/ledger" if path[1] in PostgresSettings.model_fields else "sqlite:///ledger.db"
        data["storage"] = {"url": kind}
    holder = data
    for key, following in zip(path, (*path[1:], None), strict=True):
        below: Any = MARK if following is None else [] if isinstance(following, int) else {}
        if isinstance(holder, list):
            holder.append(below)
        else:
            holder.setdefault(str(key), below)
        holder = holder[key]
    return json.dumps(data).replace(json.dumps(MARK), value)


def problems(path: Path_, kind: str, value: str) -> list[str]:
    """What is wrong at the path; problems of other settings do not count."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")
    try:
        load(document(path, kind, value), source="g", env={}, plugins=Registry(), base_dir=Path("/srv"))
    except ConfigInvalid as error:
        return [problem.message for problem in error.problems if problem.path == text]
    return []


def test_there_are_settings_of_every_kind() -> None:
    assert {kind for _, kind, _ in SETTINGS} == {"duration", "size", "number"}
    assert len(SETTINGS) > 50


TOO_MUCH = {
    "duration": ("9999999999d", f"{'9' * 400}d", f"{'9' * 5000}.999ms"),
    "size": (f"{'9' * 30}GiB", f"{'9' * 5000}B"),
    "number": ("9" * 30, "9" * 90),
}
NO_FORM = {
    "duration": ("1e400s", "-1d", ".inf", "1e400"),
    "size": ("1e400GiB", "-1B", ".nan", "1e400"),
    "number": ("1e400", "-1e400", ".inf", ".nan", "9" * 5000),
}


@pytest.mark.parametrize(("path", "kind", "entry"), SETTINGS, ids=lambda value: str(value)[:80])
def test_a_value_over_every_bound_is_refused_with_the_bound(path: Path_, kind: str, entry: str) -> None:
    for value in TOO_MUCH[kind]:
        (message,) = problems(path, entry, value)
        assert message.startswith("must be at most "), message
    for value in NO_FORM[kind]:
        (message,) = problems(path, entry, value)
        assert message.startswith("must be "), message


def largest(path: Path_, kind: str) -> Any:
    """The value that the errors of larger ones name."""
    value = TOO_MUCH[kind][0]
    while found := problems(path, "", value):
        bound = re.match(r"must be at most (\S+),", found[0])
        assert bound is not None, found
        value = bound[1]
    return json.loads(value) if kind == "number" else value


async def test_a_gateway_works_with_the_largest_value_of_every_setting_of_its_own(tmp_path: Path) -> None:
    sections: dict[str, dict[str, Any]] = {}
    for path, kind, entry in SETTINGS:
        match path:
            case (str(section), str(key)) if not entry and section not in ("server", "storage"):
                sections.setdefault(section, {})[key] = largest(path, kind)
    lines = "\n".join(f"{name}: {json.dumps(values)}" for name, values in sections.items())
    (tmp_path / "agent.py").write_text("def reply(text: str): return f'heard {text}'\n")
    limit = "timeouts: {connect: 36500d, first_byte: 36500d, between_bytes: 36500d}, approval_timeout: 36500d"
    tool = "{type: python, ref: './agent.py:reply', timeout: 36500d, max_result: 999999999GiB}"
    async with serve(ChatServer(in_rounds([Call("reply", {"text": "hi"})], [Say("Done.")])).app) as backend:
        chat = f"b: {{type: openai-chat, model: m, base_url: '{backend}/v1', tools: [t], {limit}}}"
        agents = f"a: {{type: python, ref: './agent.py:reply', blocked_after: 36500d}}\n{chat}"
        async with (
            local_gateway(agents, tmp_path, settings=f"{lines}\ntools: {{t: {tool}}}") as gateway,
            a2a_http(gateway.url) as http,
        ):
            assert text_of(await A2A(http, "a").send("Hello")) == "heard Hello"
            assert text_of(await A2A(http, "b").send("Hello")) == "Done."
