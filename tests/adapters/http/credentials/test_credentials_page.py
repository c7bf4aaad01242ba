"""The examples of docs/backends/credentials.md work, and its tables have all fields."""

import re
from pathlib import Path

import pytest

from adapters.http.credentials.settings import ApiKeyAuth, AwsAuth, EntraAuth, OAuth2Auth
from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.config.settings import Settings

pytest.importorskip("azure.identity")
pytest.importorskip("botocore")

_PAGE = (Path(__file__).parents[4] / "docs" / "backends" / "credentials.md").read_text(encoding="utf-8")
_ENV = {"AZURE_OPENAI_KEY": "k", "CLIENT_SECRET": "s", "AZURE_CLIENT_SECRET": "s"}
_EXAMPLES: list[str] = re.findall(r"```yaml\n(.*?)```", _PAGE, re.DOTALL)


def _loaded(text: str, folder: Path) -> GatewayConfig:
    return load(text, source="gateway.yaml", env=_ENV, plugins=Registry(), base_dir=folder)


@pytest.mark.parametrize("text", _EXAMPLES, ids=["api_key", "oauth2", "entra", "aws"])
async def test_every_agent_of_the_page_can_be_made(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TENANT_ID", "t"), ("CLIENT_ID", "c"), ("FEDERATED_TOKEN_FILE", "f")):
        monkeypatch.setenv(f"AZURE_{name}", value)
    registry = Registry()
    for agent in _loaded(text, tmp_path).agents.values():
        adapter = registry.factory(agent.type).build(agent.settings)
        await adapter.aclose()


@pytest.mark.parametrize("form", [ApiKeyAuth, OAuth2Auth, EntraAuth, AwsAuth])
def test_every_field_is_on_the_page(form: type[Settings]) -> None:
    assert [name for name in form.model_fields if f"`{name}`" not in _PAGE] == []
