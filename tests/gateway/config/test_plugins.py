"""Plug-ins are found by name and loaded once; an unusable one is reported in plain words, with its package."""

from pathlib import Path

import pytest
import yaml

from adapters.tools.http import HttpTool
from gateway.config.plugins import Registry
from gateway.ledger.port import LedgerFactory
from gateway.ports.adapter import AdapterFactory
from gateway.ports.tools import ToolFactory
from tests.support.installed import install, run


def test_the_types_are_those_of_the_installed_entry_points() -> None:
    assert {"openai-chat", "openai-responses", "python"} <= set(Registry().known("agents"))


def test_an_adapter_is_found_by_its_type_and_a_ledger_by_its_scheme() -> None:
    registry = Registry()
    factory = registry.factory("openai-chat")
    assert isinstance(factory, AdapterFactory)
    assert registry.settings_model("agents", "openai-chat") is factory.settings
    assert factory.build(factory.settings(model="m")).ownership.owner == "gateway"
    assert isinstance(registry.ledger("sqlite:///x.db"), LedgerFactory)


def test_an_unknown_name_is_reported_with_the_known_ones() -> None:
    registry = Registry()
    assert registry.settings_model("agents", "nonsense") is None
    with pytest.raises(ValueError, match=r"there is no 'nonsense' in a2a_gateway\.adapters; installed are .*python"):
        registry.factory("nonsense")
    with pytest.raises(ValueError, match=r"there is no 'mysql' in a2a_gateway\.ledgers; installed are .*sqlite"):
        registry.ledger("mysql://host/x")


def test_a_source_of_tools_is_found_by_its_type() -> None:
    registry = Registry()
    assert {"http", "mcp", "python"} <= set(registry.known("tools"))
    factory = registry.tool_factory("http")
    assert isinstance(factory, ToolFactory)
    assert registry.settings_model("tools", "http") is factory.settings
    assert registry.settings_model("tools", "nonsense") is None
    assert isinstance(registry.tool_source("http", factory.settings(url="http://h", description="d")), HttpTool)
    with pytest.raises(ValueError, match=r"there is no 'nonsense' in a2a_gateway\.tools; installed are .*mcp"):
        registry.tool_factory("nonsense")


# --- plug-ins that cannot be used -------------------------------------------------------------------------------------

MODULES = {
    "imports_nothing": "open('imported', 'a').write('x')\nimport no_such_module\n",
    "raises": "raise RuntimeError('no\\n  GPU')\n",
    "half": "thing = {}\n",
}
PACKAGES = {
    "acme-one": {"gone": "imports_nothing:factory", "raising": "raises:factory", "nameless": "half:factory"},
    "acme-two": {"odd": "half:thing", "both": "half:thing"},
    "acme-three": {"both": "half:thing"},
}
TOLD = {
    "gone": "the plug-in 'gone' (entry point imports_nothing:factory of acme-one 1.2) cannot be loaded: "
    "ModuleNotFoundError: No module named 'no_such_module'",
    "raising": "the plug-in 'raising' (entry point raises:factory of acme-one 1.2) cannot be loaded: RuntimeError: no GPU",
    "nameless": "the plug-in 'nameless' (entry point half:factory of acme-one 1.2) cannot be loaded: "
    "AttributeError: module 'half' has no attribute 'factory'",
    "odd": "the plug-in 'odd' (entry point half:thing of acme-two 1.2) is no AdapterFactory but of the type dict",
    "both": "several packages bring a plug-in 'both': acme-three 1.2, acme-two 1.2; keep one of them",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages with every fault of a plug-in, and a file with an agent for each."""
    install(tmp_path, PACKAGES, MODULES)
    agents = "".join(f"  {name}:\n    type: {name}\n    secret: 1\n" for name in TOLD)
    (tmp_path / "gateway.yaml").write_text(f"version: 1\nserver: {{port: 0}}\nagents:\n{agents}")
    return tmp_path


@pytest.mark.parametrize("command", ["check", "serve"])
def test_an_unusable_plug_in_is_reported_at_the_agent_that_names_it(site: Path, command: str) -> None:
    ended = run(site, command, "-c", "gateway.yaml")
    told = [f"gateway.yaml:{5 + 3 * n}:11: agents.{name}.type: {words}" for n, (name, words) in enumerate(TOLD.items())]
    assert (ended.returncode, ended.stdout, ended.stderr.splitlines()) == (78, "", told)
    assert (site / "imported").read_text() == "x"


def test_the_schema_of_the_other_types_does_not_suffer(site: Path) -> None:
    ended = run(site, "schema")
    assert ended.returncode == 0, ended.stderr
    schema = yaml.safe_load(ended.stdout)
    assert {"agent:python", "agent:gone", "agent:both"} <= schema["$defs"].keys()


def test_an_unused_plug_in_is_not_loaded(site: Path) -> None:
    (site / "gateway.yaml").write_text('version: 1\nagents: {a: {type: python, ref: "gateway.cli.demo.agent:reply"}}\n')
    ended = run(site, "check", "-c", "gateway.yaml")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not (site / "imported").exists()
