"""The section `storage`: the scheme of its URL decides which keys it has, and nobody is shown its credentials."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import pytest
from pydantic import AfterValidator, BaseModel, Field, SecretStr, ValidationInfo

from gateway.config.dump import dump
from gateway.config.gateway import GatewayConfig
from gateway.config.json_schema import schema
from gateway.config.loader import load
from gateway.config.problems import ConfigInvalid
from gateway.config.settings import Duration, LocalPath, Settings, duration
from gateway.config.warnings import warnings
from storage.settings import SqliteSettings


class PoolSettings(Settings):
    """Connections that are kept."""

    size: int = Field(4, ge=1, description="How many.")
    wait: Duration = Field(duration("5s"), description="How long to wait for one.")


def _shelf_url(url: str, info: ValidationInfo) -> str:
    scheme, _, rest = url.partition("://")
    host = rest.rpartition("@")[2].partition("?")[0]
    if not host.endswith("/books"):
        raise ValueError(f"must end with a shelf, as shelf://library/books, which {url} and {host} do not")
    return f"{scheme}://{rest}"


class ShelfSettings(Settings):
    """A shelf of a library."""

    url: Annotated[str, AfterValidator(_shelf_url)] = Field(description="shelf://USER:PASSWORD@LIBRARY/books")
    section: str = Field(description="Part of the shelf.")
    pool: PoolSettings = Field(PoolSettings(), description="Connections that are kept.")
    ca: LocalPath | None = Field(None, description="Authorities to trust.")
    card: SecretStr | None = Field(None, description="Card of the library.")


class Types:
    _models: Mapping[str, Mapping[str, type[BaseModel]]] = {
        "agents": {"plain": Settings},
        "tools": {},
        "storage": {"sqlite": SqliteSettings, "shelf": ShelfSettings},
    }

    def known(self, section: str) -> Sequence[str]:
        return tuple(self._models[section])

    def settings_model(self, section: str, kind: str) -> type[BaseModel] | None:
        return self._models[section].get(kind)

    def takes_tools(self, kind: str) -> bool:
        return True


URL = "shelf://ada:p%40ss@library/books"
FILE = "version: 1\nagents: {a: {type: plain}}\n"


def loaded(
    storage: str, env: Mapping[str, str] | None = None, overrides: Mapping[str, object] | None = None
) -> GatewayConfig:
    text = f"{FILE}storage: {storage}\n" if storage else FILE
    return load(text, source="gateway.yaml", env=env or {}, plugins=Types(), base_dir=Path("/srv"), overrides=overrides)


def refusal(storage: str, env: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigInvalid) as refused:
        loaded(storage, env)
    return str(refused.value).splitlines()


def shelf(config: GatewayConfig) -> ShelfSettings:
    assert isinstance(config.storage.settings, ShelfSettings)
    return config.storage.settings


@pytest.mark.parametrize(
    ("storage", "problem"),
    [
        ("[a]", "3:10: storage: must be a mapping (lines of `key: value`)"),
        ("{url: 5}", "3:16: storage.url: must be text; put it in quotes"),
        ("{url: ''}", "3:16: storage.url: must not be empty"),
        (
            "{url: data/gateway.db}",
            "3:16: storage.url: must begin with the kind of storage, as sqlite:///./data/gateway.db; installed: shelf, sqlite",
        ),
        (
            "{url: 'shlef://ada:secret@library/books', section: a}",
            "3:16: storage.url: unknown kind of storage 'shlef'; did you mean 'shelf'? installed: shelf, sqlite",
        ),
        ("{url: 'sqlite://b.db'}", "3:16: storage.url: must start with sqlite:///, as sqlite:///./data/gateway.db"),
        ("{section: a}", "3:11: storage.section: unknown key; known here: url, auto_migrate, lease_timeout, encryption_key"),
        (f"{{url: '{URL}'}}", "3:1: storage.section: is required, but missing (part of the shelf)"),
        (f"{{url: '{URL}', section: a, pol: {{size: 3}}}}", "storage.pol: unknown key; did you mean 'pool'?"),
        (f"{{url: '{URL}', section: a, size: 3}}", "storage.size: unknown key; did you mean 'pool.size'?"),
        (f"{{url: '{URL}', section: a, pool: {{size: 0}}}}", "storage.pool.size: must be at least 1, not 0"),
        (f"{{url: '{URL}', section: a, lease_timout: 5s}}", "storage.lease_timout: unknown key; did you mean 'lease_timeout'?"),
        (f"{{url: '{URL}', section: a, card: 123456}}", "storage.card: must be text; put it in quotes"),
    ],
)  # fmt: skip
def test_a_wrong_key_is_told_with_its_place_and_remedy(storage: str, problem: str) -> None:
    [told] = refusal(storage)
    assert told.startswith("gateway.yaml:3:")
    assert told.endswith(problem)


def test_the_common_keys_and_those_of_the_kind_are_told_at_once() -> None:
    told = refusal(f"{{url: '{URL}', lease_timeout: 5, pool: {{wait: 5}}}}")
    assert [line.split(": ")[1] for line in told] == ["storage.section", "storage.lease_timeout", "storage.pool.wait"]


def test_a_url_that_its_kind_refuses_is_not_quoted() -> None:
    url = "shelf://ada:secret@library"
    [told] = refusal(f"{{url: '{url}', section: a}}")
    assert told == (
        "gateway.yaml:3:16: storage.url: must end with a shelf, as shelf://library/books, which *** and library do not"
    )


@pytest.mark.parametrize("url", ["sqlite:///", "sqlite:/"])
def test_the_example_of_a_problem_is_whole_where_the_url_is_its_beginning(url: str) -> None:
    [told] = refusal(f"{{url: '{url}'}}")
    assert told.endswith(
        (" and nothing else: sqlite:///./data/gateway.db", "sqlite:///, as sqlite:///./data/gateway.db")
    )


def test_a_url_without_credentials_is_no_secret_in_the_words_of_a_kind() -> None:
    [told] = refusal("{url: 'shelf://library', section: a}")
    words = "must end with a shelf, as shelf://library/books, which shelf://library and library do not"
    assert told == f"gateway.yaml:3:16: storage.url: {words}"


@pytest.mark.parametrize("rest", ["//ada@library", "/ada:secret", "ada:secret", "//library?password=secret"])
def test_a_url_that_may_hold_credentials_is_masked_also_where_it_is_mistyped(rest: str) -> None:
    [told] = refusal(f"{{url: 'shelf:{rest}', section: a}}")
    assert "which *** and " in told


def test_variables_and_flags_give_the_url_and_the_keys_of_its_kind() -> None:
    env = {
        "A2A_GATEWAY__STORAGE__URL": URL,
        "A2A_GATEWAY__STORAGE__SECTION": "a",
        "A2A_GATEWAY__STORAGE__POOL__SIZE": "7",
        "A2A_GATEWAY__STORAGE__AUTO_MIGRATE": "false",
    }
    config = loaded("", env)
    assert (config.storage.url, config.storage.auto_migrate) == (URL, False)
    assert (shelf(config).section, shelf(config).pool.size) == ("a", 7)
    assert shelf(loaded("{section: a}", overrides={"storage.url": URL})).url == URL


def test_a_wrong_value_of_a_variable_is_told_with_its_name() -> None:
    env = {"A2A_GATEWAY__STORAGE__URL": URL, "A2A_GATEWAY__STORAGE__POOL__SIZE": "many"}
    assert refusal("{section: a}", env) == [
        "environment: A2A_GATEWAY__STORAGE__POOL__SIZE: must be a whole number, not 'many'"
    ]


def test_a_variable_with_too_few_underscores_is_noticed_for_keys_of_the_kind_too() -> None:
    config = loaded(f"{{url: '{URL}', section: a}}")
    [told] = warnings(config, {"A2A_GATEWAY_STORAGE_POOL_SIZE": "7"}, Types())
    assert told.message == "sets nothing; did you mean A2A_GATEWAY__STORAGE__POOL__SIZE?"


def test_without_a_url_the_storage_is_a_file_beside_the_configuration() -> None:
    for storage in ("", "{auto_migrate: false}"):
        assert loaded(storage).storage.url == "sqlite:////srv/data/gateway.db"


def test_paths_of_the_kind_begin_at_the_folder_of_the_file() -> None:
    assert shelf(loaded(f"{{url: '{URL}', section: a, ca: ./ca.pem}}")).ca == Path("/srv/ca.pem")


def test_a_dump_has_the_keys_of_the_kind_and_no_secret() -> None:
    config = loaded(f"{{url: '{URL}?password=s3cret&a=b', section: a, pool: {{size: 7}}, card: s3cret}}")
    text = dump(config)
    assert text.splitlines()[text.splitlines().index("storage:") :][:11] == [
        "storage:",
        '  url: "shelf://***@library/books?password=***&a=b"',
        "  auto_migrate: true  # default",
        "  lease_timeout: 5s  # default",
        "  encryption_key: null  # default",
        "  section: a",
        "  pool:",
        "    size: 7",
        "    wait: 5s  # default",
        "  ca: null  # default",
        '  card: "***"',
    ]
    assert config.storage.address == "shelf://***@library/books?password=***&a=b"
    again = loaded(f"{{url: '{URL}', section: a, pool: {{size: 7}}}}")
    assert load(dump(again).replace("***", "ada:p%40ss"), source="", env={}, plugins=Types(), base_dir=Path()) == again


SCHEMA = jsonschema.Draft202012Validator(schema(Types()))


@pytest.mark.parametrize(
    ("storage", "valid"),
    [
        ({}, True),
        ({"auto_migrate": False}, True),
        ({"url": "sqlite:///x.db"}, True),
        ({"url": URL, "section": "a", "pool": {"size": 3}}, True),
        ({"url": "${URL}", "section": "a"}, True),
        ({"url": "${URL}"}, True),
        ({"section": "a"}, False),
        ({"url": "sqlite:///x.db", "section": "a"}, False),
        ({"url": URL}, False),
        ({"url": URL, "section": "a", "pool": {"size": "3"}}, False),
        ({"url": "other://x"}, False),
    ],
)
def test_the_schema_has_the_keys_of_each_kind(storage: dict[str, Any], valid: bool) -> None:
    assert SCHEMA.is_valid({"version": 1, "agents": {"a": {"type": "plain"}}, "storage": storage}) is valid
