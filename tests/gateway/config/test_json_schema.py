"""The JSON Schema for editors accepts the same files as the loader."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel, Field, SecretStr

from gateway.config.json_schema import schema
from gateway.config.settings import Duration, Settings, TextOrFile
from storage.settings import SqliteSettings


class Retry(Settings):
    """How often to try again."""

    attempts: int = Field(3, description="Tries in all.")


class ChatSettings(Settings):
    """A model behind a chat API."""

    model: str = Field(description="Name of the model.")
    api_key: SecretStr | None = Field(None, description="Key of the API.")
    instructions: TextOrFile | None = Field(None, description="What the model is told first.")
    timeout: Duration = Field(90.0, description="How long to wait.")
    retry: Retry = Field(Retry(), description="How often to try again.")


class PythonSettings(Settings):
    """A Python function."""

    ref: str = Field(description="module:name")


class McpSettings(Settings):
    """A server of tools."""

    url: str = Field(description="Where it is.")


class Types:
    """The types that these files may name."""

    _models: Mapping[str, Mapping[str, type[BaseModel]]] = {
        "agents": {"openai-chat": ChatSettings, "python": PythonSettings},
        "tools": {"mcp": McpSettings},
        "storage": {"sqlite": SqliteSettings},
    }

    def known(self, section: str) -> Sequence[str]:
        return tuple(self._models[section])

    def settings_model(self, section: str, kind: str) -> type[BaseModel] | None:
        return self._models[section].get(kind)

    def takes_tools(self, kind: str) -> bool:
        return kind != "python"


SCHEMA = schema(Types())


def is_valid(document: object) -> bool:
    return bool(jsonschema.Draft202012Validator(SCHEMA).is_valid(document))


def file(agent: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {"version": 1, "agents": {"a": agent}, **sections}


CHAT = {"type": "openai-chat", "model": "m"}


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"version": 1},
        {"version": 1, "agents": {}},
        {"version": 2, "agents": {"a": CHAT}},
        {"version": 1, "agents": {"A_b": CHAT}},
        file({"type": "openai-chat"}),
        file({"type": "unknown", "model": "m"}),
        file({"type": "python", "model": "m"}),
        file(CHAT | {"timeout": 30}),
        file(CHAT | {"timeout": "30"}),
        file(CHAT | {"history": {"owner": "bakend"}}),
        file(CHAT | {"retry": {"attempts": "3"}}),
        file(CHAT | {"instructions": {"path": "x"}}),
        file(CHAT, server={"port": "80"}),
        file(CHAT, server={"prot": 80}),
        file(CHAT, limits={"request_body": "8 megs"}),
        file(CHAT, retention={"tasks": 30}),
    ],
)
def test_a_wrong_document_does_not_match(document: object) -> None:
    assert not is_valid(document)


@pytest.mark.parametrize(
    "document",
    [
        file(CHAT),
        file({"type": "python", "ref": "m:f", "default": True}),
        file(CHAT | {"timeout": "30s", "instructions": {"file": "x.md"}, "history": {"owner": "gateway"}}),
        file(CHAT | {"timeout": "${T:-30s}", "retry": {"attempts": "${N}"}, "busy_context": "${B}"}),
        file(CHAT, server={"port": "${PORT:-80}", "shutdown_grace": "${GRACE}"}, storage={"auto_migrate": "${M}"}),
        file(CHAT, limits={"request_body": "8MiB"}, cards={"provider": {"organization": "o", "url": "https://x"}}),
    ],
)
def test_a_right_document_matches(document: object) -> None:
    assert is_valid(document)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def properties(node: object) -> Iterator[tuple[str, dict[str, Any]]]:
    match node:
        case dict():
            found = node.get("properties")
            yield from found.items() if isinstance(found, dict) and "type" in node else ()
            for below in node.values():
                yield from properties(below)
        case list():
            for below in node:
                yield from properties(below)


def test_every_key_is_described() -> None:
    def described(key: dict[str, Any]) -> bool:
        # pydantic leaves a description out that is the same as that of the mapping it points to
        return "description" in key or "description" in SCHEMA["$defs"][key["$ref"].removeprefix("#/$defs/")]

    found = list(properties(SCHEMA))
    assert len(found) > 50
    assert [name for name, key in found if not described(key)] == []


def test_defaults_are_written_as_in_the_file() -> None:
    chat = SCHEMA["$defs"]["agent:openai-chat"]["properties"]
    limits = SCHEMA["$defs"]["LimitsConfig"]["properties"]
    assert (chat["timeout"]["default"], limits["request_body"]["default"]) == ("90s", "8MiB")
    assert limits["turn_timeout"]["default"] == "15m"


def test_every_definition_is_used() -> None:
    assert {"AgentCommon", "ChatSettings", "GatewaySections"}.isdisjoint(SCHEMA["$defs"])


MCP = {"type": "mcp", "url": "http://localhost/mcp"}


@pytest.mark.parametrize(
    ("tools", "valid"),
    [
        ({"github": MCP}, True),
        ({"github": MCP | {"allow": ["search_*"], "timeout": "20s", "required": "${R}", "max_result": "1MiB"}}, True),
        ({}, True),
        ({"github": {"type": "mcp"}}, False),
        ({"github": {"type": "openai-chat", "model": "m"}}, False),
        ({"github": MCP | {"allow": "search"}}, False),
        ({"Git Hub": MCP}, False),
    ],
)
def test_sources_of_tools_have_a_schema_as_agents_have(tools: dict[str, Any], valid: bool) -> None:
    assert is_valid(file(CHAT | {"tools": list(tools)}, tools=tools)) is valid
