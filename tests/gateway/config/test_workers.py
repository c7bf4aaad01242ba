"""How many processes serve."""

from pathlib import Path

import pytest

from gateway.config import workers
from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid
from gateway.config.workers import ledger_problem, worker_count, workers_problem
from gateway.foundation.cores import usable_cores

FILE, SERVER = "sqlite:///gateway.db", "postgresql://ada:s3cret@host/ledger"


def config(count: object, url: str) -> GatewayConfig:
    given = f"server: {{workers: {count}}}\nstorage: {{url: '{url}'}}"
    text = f"version: 1\n{given}\nagents: {{a: {{type: openai-chat, model: m}}}}"
    return load(text, source="gateway.yaml", env={}, plugins=Registry(), base_dir=Path("/"))


def told(count: object, url: str) -> str | None:
    problem = workers_problem(config(count, url), Registry())
    return None if problem is None else str(problem)


@pytest.mark.parametrize("count", [0, -1, 1.5, "many", "true"])
def test_only_a_number_of_processes_is_one(count: object) -> None:
    with pytest.raises(
        ConfigInvalid, match=r"server\.workers: must be a number of processes from 1 to 256, or auto, not"
    ):
        config(count, SERVER)


def test_several_on_a_ledger_that_gains_nothing_by_them_are_refused_without_its_credentials() -> None:
    problem = told(2, FILE)
    assert problem is not None
    assert "2 processes on sqlite:////gateway.db would do hardly more than one" in problem
    assert "keep state in PostgreSQL (storage: {url: postgresql://...})" in problem


def test_several_are_refused_where_the_system_spreads_no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "BALANCED", False)
    assert "that needs Linux" in str(told(2, SERVER))
    assert ledger_problem(config(2, SERVER), Registry()) is None
    assert worker_count(config("auto", SERVER), Registry()) == 1


@pytest.mark.parametrize(("count", "url"), [(1, FILE), ("auto", FILE), (1, SERVER), ("auto", SERVER), (8, SERVER)])
def test_all_else_is_allowed(count: object, url: str) -> None:
    assert told(count, url) is None


@pytest.mark.parametrize(
    ("count", "url", "processes"),
    [(1, FILE, 1), ("auto", FILE, 1), (3, SERVER, 3), ("auto", SERVER, usable_cores())],
)
def test_auto_is_one_for_each_core_where_that_helps(count: object, url: str, processes: int) -> None:
    assert worker_count(config(count, url), Registry()) == processes


def test_one_process_is_the_default() -> None:
    text = "version: 1\nagents: {a: {type: openai-chat, model: m}}"
    assert load(text, source="-", env={}, plugins=Registry(), base_dir=Path("/")).server.workers == 1
