"""From the entries of `tools` in a configuration to sources that agents share. Law: nothing is contacted."""

from gateway.config.agents import ToolConfig
from gateway.config.gateway import GatewayConfig
from gateway.config.plugins import Registry
from gateway.engine.tool_sources import AttachedSource


def build_sources(config: GatewayConfig, registry: Registry) -> dict[str, AttachedSource]:
    """One for each entry of `tools`, shared by the agents. Raises: ValueError for one that cannot work, naming it."""
    return {name: build_source(name, tool, registry) for name, tool in config.tools.items()}


def build_source(name: str, tool: ToolConfig, registry: Registry) -> AttachedSource:
    """Raises: ValueError as `build_sources`."""
    try:
        source = registry.tool_source(tool.type, tool.settings)
    except ValueError as error:
        raise ValueError(f"tools.{name}: {error}") from error
    return AttachedSource(name, tool.type, source, tool.allow, tool.timeout, tool.required, tool.max_result)
