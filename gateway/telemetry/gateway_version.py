"""The version of the gateway that runs."""

from importlib.metadata import PackageNotFoundError, version


def gateway_version() -> str:
    try:
        return version("a2a-gateway")
    except PackageNotFoundError:
        return "unknown"
