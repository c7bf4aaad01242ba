"""Addresses in the settings: which are refused, and what no text shows of them."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, get_args

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from adapters.tools.http import UrlTemplate
from gateway.config.agents import AgentCommon
from gateway.config.gateway import GatewaySections
from gateway.config.plugins import Registry

_ADDRESS = re.compile(r"(\w+_)?(url|endpoint|authority)")
_NO_WEB_ADDRESS = {"http.url": "a template", "GatewaySections.storage.url": "a file"}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models(each)


def _addresses(model: type[BaseModel], path: str) -> Iterator[tuple[str, Any]]:
    """All settings of the model, and of those below it, that are addresses by their names: path and type."""
    for name, field in model.model_fields.items():
        if _ADDRESS.fullmatch(name) and f"{path}.{name}" not in _NO_WEB_ADDRESS:
            yield (
                f"{path}.{name}",
                Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation,
            )
        for below in _models(field.annotation):
            yield from _addresses(below, f"{path}.{name}")


def _all() -> dict[str, Any]:
    registry = Registry()
    found = dict(_addresses(GatewaySections, "GatewaySections")) | dict(_addresses(AgentCommon, "AgentCommon"))
    for section in ("agents", "tools"):
        for kind in registry.known(section):
            model = registry.settings_model(section, kind)
            assert model is not None
            found |= dict(_addresses(model, kind))
    return found


ADDRESSES = _all()


@pytest.mark.parametrize("setting", ADDRESSES)
@pytest.mark.parametrize(
    "credentials", ["hidden:hidden", "hidden", ":hidden", "", "hidden:hid@den", "hidden:hid/den", "hidden:hid den"]
)
def test_an_address_with_credentials_is_refused_and_they_are_not_shown(setting: str, credentials: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(ADDRESSES[setting]).validate_python(f"https://{credentials}@host.example/v1")
    [error] = caught.value.errors(include_input=False)
    assert re.search(r"must have no user or password in it|must be an address", error["msg"])
    assert "hid" not in str(error)


@pytest.mark.parametrize("setting", ADDRESSES)
def test_an_address_may_have_the_sign_of_credentials_behind_its_host(setting: str) -> None:
    address = "https://host.example/@team"
    assert TypeAdapter(ADDRESSES[setting]).validate_python(address) == address


def test_the_address_of_a_tool_is_refused_with_credentials_as_well() -> None:
    with pytest.raises(ValueError, match="must have no credentials") as caught:
        UrlTemplate.parse("https://hidden:hidden@host.example/{a}")
    assert "hidden" not in str(caught.value)
