"""Libraries that are extras of the gateway."""

from importlib import import_module
from types import ModuleType


def needing(what: str, package: str, extra: str, module: str) -> ModuleType:
    """The module that imports `package`, which `what` (plural, as the operator calls it) needs. Raises: ValueError that names
    the extra, where the package is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ValueError(
            f"{what} need the package `{package}`, which cannot be imported ({error}); "
            f"install it with: pip install 'a2a-gateway[{extra}]'"
        ) from error
