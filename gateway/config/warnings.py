"""What a configuration says that works, but hardly as it is meant. Law: a warning says what happens, and what to do."""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address

from gateway.config.gateway import GatewayConfig
from gateway.config.overrides import misspelled_variables
from gateway.config.problems import Problem
from gateway.config.shape import PluginTypes, Shape


def warnings(config: GatewayConfig, env: Mapping[str, str], plugins: PluginTypes) -> Iterator[Problem]:
    """`env` is the environment that the configuration was read with."""
    server = config.server
    if _is_unspecified(server.host) and "public_url" not in server.model_fields_set:
        message = (
            f"is not given, so the cards send clients to {server.public_url}, which on another machine is not this gateway; "
            "set it to the address that clients use"
        )
        yield Problem(None, None, None, "server.public_url", message)
    entries = {
        name: {key: {"type": entry.type} for key, entry in section.items()}
        for name, section in (("agents", config.agents), ("tools", config.tools))
    }
    kinds = entries | {"storage": {"url": config.storage.url}}
    yield from misspelled_variables(env, kinds, Shape(plugins, kinds))


def _is_unspecified(host: str) -> bool:
    """Whether the host stands for all addresses of this machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
