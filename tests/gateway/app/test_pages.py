"""Where the pages are on, and what of them is loaded."""

from pathlib import Path

import pytest

from gateway.app import pages
from gateway.app.pages import pages_problem, pages_wanted
from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid

AGENT = "agents: {echo: {type: python, ref: 'gateway.cli.demo.agent:reply'}}"
KEYS = "auth: {mode: any_of, api_keys: {enabled: true}}"
EVERYWHERE = "server: {host: 0.0.0.0}"


def configured(folder: Path, *sections: str) -> GatewayConfig:
    text = "\n".join(("version: 1", "storage: {url: temporary}", *sections, AGENT))
    return load(text, source="test.yaml", env={}, plugins=Registry(), base_dir=folder)


@pytest.mark.parametrize(
    ("sections", "wanted"),
    [
        ((), True),
        ((EVERYWHERE,), False),
        ((EVERYWHERE, KEYS), True),
        ((EVERYWHERE, "ui: {enabled: true}"), True),
        ((KEYS, "ui: {enabled: false}"), False),
    ],
)
def test_pages_are_on_where_they_do_no_harm_or_are_asked_for(
    tmp_path: Path, sections: tuple[str, ...], wanted: bool
) -> None:
    assert pages_wanted(configured(tmp_path, *sections)) is wanted


@pytest.mark.parametrize(("sections", "refused"), [((), False), (("ui: {enabled: true}",), True)])
def test_without_their_package_they_are_off_or_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sections: tuple[str, ...], refused: bool
) -> None:
    monkeypatch.setattr(pages, "_NEEDED", "jinja_that_is_not_there")
    config = configured(tmp_path, *sections)
    problem = pages_problem(config)
    if not refused:
        assert (problem, pages_wanted(config)) == (None, False)
        return
    assert problem is not None
    assert (problem.path, "pip install 'a2a-gateway[ui]'" in problem.message) == ("ui.enabled", True)
    with pytest.raises(ConfigInvalid):
        pages_wanted(config)
