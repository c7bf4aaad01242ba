"""The extras, each with something that cannot be had without it."""

from collections.abc import Mapping
from dataclasses import dataclass

_AGENT = "agents: {some: {type: openai-chat, model: m, base_url: 'http://localhost:1/v1'%s}}\n"


@dataclass(frozen=True, slots=True)
class Need:
    """`configuration` is a `gateway.yaml` without its first line, `asks` the commands to run on it. They say `lacking` where the
    extra is not installed, and `having` where it is."""

    configuration: str
    lacking: str
    having: str = "ok; agents: some"
    asks: str = "a2a-gateway check || test $? = 78"


def _needs(extra: str, configuration: str, agent: str = "") -> Need:
    return Need(configuration + _AGENT % agent, lacking=f"pip install 'a2a-gateway[{extra}]'")


NEEDING: Mapping[str, Need] = {
    "aws": _needs("aws", "", ", auth: {type: aws, service: bedrock, region: eu-central-1}"),
    "azure": _needs("azure", "", ", auth: {type: entra, identity: managed, scope: 'https://ai.azure.com/.default'}"),
    "grpc": _needs("grpc", "server: {grpc: {port: 50051}}\n"),
    "mcp": _needs("mcp", "tools: {files: {type: mcp, url: 'http://localhost:1/mcp'}}\n", ", tools: [files]"),
    "otel": _needs("otel", "tracing: {enabled: true}\n"),
    "postgres": _needs("postgres", "storage: {url: 'postgresql://gateway@localhost:1/ledger'}\n"),
    "ui": Need(
        _AGENT % "",
        lacking="with its extra `ui`",
        having="<!doctype html>",
        asks="a2a-gateway serve &\ncurl -s -H 'Accept: text/html' $A2A_GATEWAY_URL/",
    ),
}
