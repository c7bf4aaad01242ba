"""Libraries that are extras of the gateway."""

from importlib import import_module
from types import ModuleType


def needing(package: str, extra: str, form: str, module: str) -> ModuleType:
    """The module that imports `package`. Raises: ValueError that names the extra, where the package is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ValueError(
            f"credentials of type {form} need the package `{package}`, which cannot be imported ({error}); "
            f"install it with: pip install 'a2a-gateway[{extra}]'"
        ) from error
