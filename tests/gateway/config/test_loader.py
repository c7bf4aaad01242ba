"""Loading gateway.yaml: all problems of a file at once, with place and remedy; flags and variables override it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, SecretStr, field_validator, model_validator

from gateway.config.agents import HistoryConfig
from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.problems import ConfigInvalid, Problem
from gateway.config.settings import Duration, LocalPath, Settings, TextOrFile
from storage.settings import SqliteSettings


class Retry(Settings):
    attempts: int = 3
    pause: Duration = 1.0


class KeyAuth(Settings):
    type: Literal["key"]
    key: SecretStr

    @field_validator("key")
    @classmethod
    def _no_syllable(cls, value: SecretStr) -> SecretStr:
        if value.get_secret_value() in ("e", "es"):
            raise ValueError("must not be one of these: e, es")
        return value


class TokenAuth(Settings):
    type: Literal["token"]
    url: str
    secret: SecretStr


class ChatSettings(Settings):
    auth: Annotated[KeyAuth | TokenAuth, Field(discriminator="type")] | None = None
    model: str = Field(description="Name of the model.")
    api_key: SecretStr | None = None
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    base_url: str = "http://localhost"
    instructions: TextOrFile | None = None
    retry: Retry = Retry()
    temperature: float | None = None
    stop: str | list[str] | None = None
    history: HistoryConfig = HistoryConfig()

    @field_validator("api_key")
    @classmethod
    def _no_test_keys(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and value.get_secret_value().startswith("test-"):
            raise ValueError(f"is a key for tests: {value.get_secret_value()}")
        return value

    @model_validator(mode="after")
    def _stop_needs_no_heat(self) -> "ChatSettings":
        if self.temperature and self.stop:
            raise ValueError("temperature and stop exclude each other")
        return self


class PythonSettings(Settings):
    ref: LocalPath


class McpSettings(Settings):
    url: str
    headers: dict[str, SecretStr] = Field(default_factory=dict)


class Types:
    """The types that these files may name."""

    _models: Mapping[str, Mapping[str, type[BaseModel]]] = {
        "agents": {"openai-chat": ChatSettings, "python": PythonSettings},
        "tools": {"mcp": McpSettings},
        "storage": {"sqlite": SqliteSettings},
    }

    def known(self, section: str) -> Sequence[str]:
        return tuple(self._models[section])

    def settings_model(self, section: str, kind: str) -> type[BaseModel] | None:
        return self._models[section].get(kind)

    def takes_tools(self, kind: str) -> bool:
        return kind != "python"


HEAD = "version: 1\n"
AGENT = "agents:\n  support:\n    type: openai-chat\n    model: m\n"
FILE = HEAD + AGENT
SKILL = "{id: x, name: x, description: d, tags: [t]}"


def loaded(
    text: str,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
    base_dir: Path = Path("/srv/gateway"),
) -> GatewayConfig:
    return load(
        text, source="gateway.yaml", env=env or {}, plugins=Types(), base_dir=base_dir, overrides=overrides or {}
    )


def refusal(
    text: str,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
    base_dir: Path = Path("/srv/gateway"),
) -> str:
    with pytest.raises(ConfigInvalid) as refused:
        loaded(text, env, overrides, base_dir)
    return str(refused.value)


def settings(config: GatewayConfig, agent: str = "support") -> ChatSettings:
    found = config.agents[agent].settings
    assert isinstance(found, ChatSettings)
    return found


WRONG = {
    "not a mapping": ("- a", "gateway.yaml:1:1: the file must be a mapping that begins with `version: 1`"),
    "empty": (
        "",
        (
            "gateway.yaml:1:1: agents: is required, but missing; "
            "it must be a mapping of at least one agent: its name, then its settings\n"
            "gateway.yaml:1:1: version: is required, but missing (version of this file's format: 1)"
        ),
    ),
    "other version": (f"version: 2\n{AGENT}", "gateway.yaml:1:10: version: must be 1, not 2"),
    "misspelled key": (
        f"{FILE}server: {{hots: x}}",
        "gateway.yaml:6:10: server.hots: unknown key; did you mean 'host'?",
    ),
    "key of a later section": (
        f"{FILE}telemetry: {{enabled: true}}",
        (
            "gateway.yaml:6:1: telemetry: unknown key; known here: version, server, storage, auth, limits, retention, "
            "push, cards, protocol, logs, audit, metrics, tracing, ui, tools, agents"
        ),
    ),
    "key one level too high": (
        f"{FILE}    skills: []",
        "gateway.yaml:6:5: agents.support.skills: unknown key; did you mean 'card.skills'?",
    ),
    "misspelled key of the type": (
        f"{FILE}    modle: x",
        "gateway.yaml:6:5: agents.support.modle: unknown key; did you mean 'model'?",
    ),
    "misspelled key below the type": (
        f"{FILE}    retry:\n      atempts: 2",
        "gateway.yaml:7:7: agents.support.retry.atempts: unknown key; did you mean 'attempts'?",
    ),
    "unknown type": (
        f"{HEAD}agents:\n  a: {{type: opnai-chat, model: m}}",
        (
            "gateway.yaml:3:13: agents.a.type: unknown type 'opnai-chat'; did you mean 'openai-chat'? "
            "Known types: openai-chat, python"
        ),
    ),
    "quite unknown type": (
        f"{HEAD}agents:\n  a: {{type: zzz}}",
        "gateway.yaml:3:13: agents.a.type: unknown type 'zzz'; Known types: openai-chat, python",
    ),
    "no type": (
        f"{HEAD}agents:\n  a: {{model: m}}",
        "gateway.yaml:3:3: agents.a.type: is required, but missing; known types: openai-chat, python",
    ),
    "required key of the type": (
        f"{HEAD}agents:\n  a: {{type: openai-chat}}",
        "gateway.yaml:3:3: agents.a.model: is required, but missing (name of the model)",
    ),
    "no agent": (
        f"{HEAD}agents: {{}}",
        "gateway.yaml:2:9: agents: must be a mapping of at least one agent: its name, then its settings",
    ),
    "agent that is nothing": (
        f"{FILE}  other:\n",
        "gateway.yaml:6:9: agents.other: must be a mapping with at least `type:`, not null",
    ),
    "bad name of an agent": (
        f"{FILE}  Sales_1: {{type: openai-chat, model: m}}",
        (
            "gateway.yaml:6:3: agents.Sales_1: an agent's name has 1 to 63 of a-z, 0-9 and -, "
            "and does not begin with -: it is part of its URL"
        ),
    ),
    "two defaults": (
        f"{FILE}    default: true\n  b: {{type: openai-chat, model: m, default: true}}",
        "gateway.yaml:7:45: agents.b.default: only one agent can be the default, and 'support' already is",
    ),
    "key given twice": (
        f"{FILE}    model: n",
        "gateway.yaml:6:5: agents.support.model: the key is given twice, first at 5:5; remove one of them",
    ),
    "yes for true": (
        f"{FILE}storage: {{auto_migrate: yes}}",
        (
            "gateway.yaml:6:25: storage.auto_migrate: must be true or false, not 'yes'; "
            "YAML 1.2 reads yes, no, on and off as text"
        ),
    ),
    "number in quotes": (
        f"{FILE}server: {{port: '80'}}",
        "gateway.yaml:6:16: server.port: must be a whole number, not '80'; remove the quotes",
    ),
    "port out of range": (
        f"{FILE}server: {{port: 70000}}",
        "gateway.yaml:6:16: server.port: must be at most 65535, not 70000",
    ),
    "number for text": (
        f"{HEAD}agents:\n  a: {{type: openai-chat, model: 4.10}}",
        "gateway.yaml:3:33: agents.a.model: must be text, not 4.10; put it in quotes",
    ),
    "duration without unit": (
        f"{FILE}server: {{shutdown_grace: 30}}",
        "gateway.yaml:6:26: server.shutdown_grace: must have a unit: write 30s, 30m or 30h, not 30",
    ),
    "size of no known form": (
        f"{FILE}limits: {{request_body: 8 megs}}",
        "gateway.yaml:6:24: limits.request_body: must be a size such as 512B, 64KiB, 8MiB or 10MB, not '8 megs'",
    ),
    "limit of nothing": (
        f"{FILE}limits: {{turn_timeout: 0s}}",
        "gateway.yaml:6:24: limits.turn_timeout: must be at least 100ms, not '0s'; the units are ms, s, m, h, d",
    ),
    "durations that are too short and too long": (
        f"{FILE}retention: {{tasks: 1s, contexts_idle: 23h}}\npush: {{timeout: 10m}}\n",
        (
            "gateway.yaml:6:20: retention.tasks: must be at least 1d, not '1s'; the units are ms, s, m, h, d\n"
            "gateway.yaml:6:39: retention.contexts_idle: must be at least 1d, not '23h'; the units are ms, s, m, h, d\n"
            "gateway.yaml:7:17: push.timeout: must be at most 5m, not '10m'; the units are ms, s, m, h, d"
        ),
    ),
    "durations and numbers with which nothing works": (
        f"""{FILE}storage: {{lease_timeout: 1ms}}
limits: {{id_length: 35, json_depth: 1, request_body: 10B, stream_keepalive: 1ms, turn_timeout: 999999999d}}""",
        (
            "gateway.yaml:6:26: storage.lease_timeout: must be at least 500ms, not '1ms'; the units are ms, s, m, h, d\n"
            "gateway.yaml:7:21: limits.id_length: must be at least 36, not 35\n"
            "gateway.yaml:7:37: limits.json_depth: must be at least 8, not 1\n"
            "gateway.yaml:7:54: limits.request_body: must be at least 1KiB, not '10B'; "
            "the units are B, kB, KiB, MB, MiB, GB, GiB\n"
            "gateway.yaml:7:77: limits.stream_keepalive: must be at least 100ms, not '1ms'; the units are ms, s, m, h, d\n"
            "gateway.yaml:7:96: limits.turn_timeout: must be at most 36500d, not '999999999d'"
        ),
    ),
    "numbers that JSON has not": (
        f"""{FILE}    card:
      extensions:
      - uri: x
        params: {{a: .nan, b: [1, {{c: -.inf}}], d: 1e999, e: 1e99, f: '.nan', g: 1}}""",
        "\n".join(
            f"gateway.yaml:9:{column}: agents.support.card.extensions[0].params.{key}: must be a finite number: JSON has no "
            "infinity and no NaN; put it in quotes if it is a text"
            for column, key in ((21, "a"), (38, "b[1].c"), (50, "d"))
        ),
    ),
    "what a card cannot hold": (
        f"""{FILE}    card:
      extensions:
      - uri: x
        params: {{a: 1, b: [true, {{c: null}}]}}""",
        (
            "gateway.yaml:9:17: agents.support.card.extensions[0].params: b[1].c is null or empty: a card holds nothing empty, "
            "because clients leave it out before they check its signature"
        ),
    ),
    "count beyond all use": (
        f"{FILE}    history: {{owner: gateway, max_messages: {10**30}}}",
        f"gateway.yaml:6:45: agents.support.history.max_messages: must be at most 2147483647, not {10**30}",
    ),
    "unknown choice": (
        f"{FILE}    history: {{owner: bakend}}",
        (
            "gateway.yaml:6:22: agents.support.history.owner: must be backend or gateway, not 'bakend'; "
            "did you mean 'backend'?"
        ),
    ),
    "choice of a later release": (
        f"{FILE}auth: {{mode: oidc}}",
        "gateway.yaml:6:14: auth.mode: must be none or any_of, not 'oidc'",
    ),
    "a way to say who calls that is missing": (
        f"{FILE}auth: {{mode: any_of}}",
        "gateway.yaml:6:7: auth: mode: any_of needs a way to say who calls: set `api_keys: {enabled: true}`",
    ),
    "storage that does not exist": (
        f"{FILE}storage: {{url: 'postgresql://u:pw@h/db'}}",
        ("gateway.yaml:6:16: storage.url: unknown kind of storage 'postgresql'; installed: sqlite"),
    ),
    "network with bits behind its prefix": (
        f"{FILE}push: {{allow_private_networks: [10.1.2.3/16]}}",
        (
            "gateway.yaml:6:33: push.allow_private_networks[0]: must be a network such as 10.1.0.0/16 or fd00::/8, "
            "without bits behind its prefix, not '10.1.2.3/16'"
        ),
    ),
    "key that can be guessed": (
        f"{FILE}push: {{encryption_key: secret}}",
        "gateway.yaml:6:24: push.encryption_key: must have at least 32 characters",
    ),
    "port that there is not": (
        f"{FILE}push: {{ports: [443, 0]}}",
        "gateway.yaml:6:21: push.ports[1]: must be at least 1, not 0",
    ),
    "skill without its parts": (
        f"{FILE}    card: {{skills: [{{id: '', name: x, description: d, tags: []}}]}}",
        (
            "gateway.yaml:6:26: agents.support.card.skills[0].id: must not be empty\n"
            "gateway.yaml:6:61: agents.support.card.skills[0].tags: must have at least 1 entry"
        ),
    ),
    "media type": (
        f"{FILE}    card: {{input_modes: [text]}}",
        "gateway.yaml:6:26: agents.support.card.input_modes[0]: must be a media type such as text/plain, not 'text'",
    ),
    "extended card without skills": (
        f"{FILE}    card: {{extended: {{skills: []}}}}",
        "gateway.yaml:6:31: agents.support.card.extended.skills: must have at least 1 entry",
    ),
    "extended skill twice": (
        f"{FILE}    card: {{extended: {{skills: [{SKILL}, {SKILL}]}}}}",
        "gateway.yaml:6:22: agents.support.card.extended: skills has 'x' twice",
    ),
    "text that is no key": (
        f"{FILE}cards: {{signing: {{keys: [secret]}}}}",
        (
            "gateway.yaml:6:26: cards.signing.keys[0]: must be a key in PEM (BEGIN PRIVATE KEY or BEGIN PUBLIC KEY), "
            "without a passphrase"
        ),
    ),
    "no key": (
        f"{FILE}cards: {{signing: {{keys: []}}}}",
        "gateway.yaml:6:25: cards.signing.keys: must have at least 1 entry",
    ),
    "section that is a list": (
        f"{FILE}server: [1]",
        "gateway.yaml:6:9: server: must be a mapping (lines of `key: value`)",
    ),
    "section that is nothing": (
        f"{FILE}server:\n",
        "gateway.yaml:6:8: server: must be a mapping (lines of `key: value`), not null",
    ),
    "neither member of a union": (
        f"{FILE}    stop: 5",
        "gateway.yaml:6:11: agents.support.stop: must be text, not 5; put it in quotes or must be a list, not 5",
    ),
    "settings that contradict each other": (
        f"{FILE}    stop: x\n    temperature: 0.5",
        "gateway.yaml:4:5: agents.support: temperature and stop exclude each other",
    ),
    "merge key": (
        f"{FILE}    <<: {{model: n}}",
        "gateway.yaml:6:5: agents.support['<<']: merge keys (<<) are not part of YAML 1.2; write the keys out",
    ),
    "missing file of a text": (
        f"{FILE}    instructions: {{file: no.md}}",
        (
            "gateway.yaml:6:19: agents.support.instructions: "
            "the file /srv/gateway/no.md cannot be read: no such file or directory"
        ),
    ),
    "long value": (
        f"{FILE}server: {{port: {'x' * 99}}}",
        f"gateway.yaml:6:16: server.port: must be a whole number, not '{'x' * 57}…'",
    ),
    "no form of a mapping that has several": (
        f"{FILE}    auth: {{url: u}}",
        "gateway.yaml:6:11: agents.support.auth: needs 'type', which says of what form it is",
    ),
    "unknown form of a mapping that has several": (
        f"{FILE}    auth: {{type: kerberos}}",
        "gateway.yaml:6:11: agents.support.auth: 'type' must be one of key, token, not 'kerberos'",
    ),
    "missing key of one form": (
        f"{FILE}    auth: {{type: token, url: u}}",
        "gateway.yaml:6:5: agents.support.auth.secret: is required, but missing",
    ),
    "secret in place of the mapping that holds it": (
        f"{FILE}    auth: hidden",
        "gateway.yaml:6:11: agents.support.auth: must be a mapping (lines of `key: value`)",
    ),
    "secret of the wrong kind in one form": (
        f"{FILE}    auth: {{type: key, key: 12345}}",
        "gateway.yaml:6:28: agents.support.auth.key: must be text; put it in quotes",
    ),
    "password in an address": (
        f"{FILE}cards: {{provider: {{organization: o, url: 'ftp://me:pw@host'}}}}",
        (
            "gateway.yaml:6:42: cards.provider.url: must be an address that starts with http:// or https:// "
            "and a host, not 'ftp://***@host'"
        ),
    ),
    "password in an address that would be one without it": (
        f"{FILE}cards: {{provider: {{organization: o, url: 'https://me:pw@host'}}}}",
        (
            "gateway.yaml:6:42: cards.provider.url: must have no user or password in it: addresses are shown, and "
            "credentials have settings of their own"
        ),
    ),
    "password that no address can have": (
        f"{FILE}cards: {{provider: {{organization: o, url: 'https://me:p/w@x y@host'}}}}",
        (
            "gateway.yaml:6:42: cards.provider.url: must be an address that starts with http:// or https:// "
            "and a host, not 'https://***@host'"
        ),
    ),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_file_says_where_and_what_to_do(text: str, message: str) -> None:
    assert refusal(text) == message


def test_a_wrong_value_from_a_variable_names_the_variable() -> None:
    assert refusal(f"{FILE}server:\n  port: ${{PORT:-8080}}", {"PORT": "abc"}) == (
        "gateway.yaml:7:9: server.port: must be a whole number, not 'abc' (from ${PORT})"
    )
    assert refusal(f"{FILE}    api_key: ${{KEY}}", {"KEY": "test-1"}) == (
        "gateway.yaml:6:14: agents.support.api_key: is a key for tests: *** (from ${KEY})"
    )


def test_a_reference_in_quotes_may_be_a_number_as_inside_braces_it_has_to_be_in_quotes() -> None:
    sections = "server: {port: '${PORT}'}\nstorage: {auto_migrate: '${MIGRATE:-false}'}\n"
    text = f"{HEAD}{sections}{AGENT}    temperature: '${{T}}'"
    config = loaded(text, {"PORT": "8081", "T": "0.5"})
    assert (config.server.port, config.storage.auto_migrate, settings(config).temperature) == (8081, False, 0.5)
    assert refusal(text, {"PORT": "eight", "T": "warm"}).splitlines() == [
        "gateway.yaml:2:16: server.port: must be a whole number, not 'eight' (from ${PORT})",
        "gateway.yaml:8:18: agents.support.temperature: must be a number, not 'warm' (from ${T})",
    ]
    assert refusal(text, {"PORT": "80.5", "T": "1"}) == (
        "gateway.yaml:2:16: server.port: must be a whole number, not 80.5 (from ${PORT})"
    )


@pytest.mark.parametrize(("line", "wanted"), [("api_key: {OPENAI_API_KEY}", "text"), ("temperature: {T}", "a number")])
def test_a_variable_without_its_dollar_is_no_mapping(line: str, wanted: str) -> None:
    found = refusal(f"{FILE}    {line}")
    assert f": must be {wanted}" in found
    assert found.endswith("; a variable is written as ${NAME}")


def test_all_problems_come_at_once_in_the_order_of_the_file_then_those_of_variables_and_flags() -> None:
    text = f"{FILE}    api_key: ${{KEY}}\nserver: {{prot: 1}}\nlimits: {{parts: 0}}"
    env = {"A2A_GATEWAY__LIMITS__STREAMS": "many", "A2A_GATEWAY__STORAGE__URI": "x"}
    assert refusal(text, env, {"server.host": 5}).splitlines() == [
        (
            "gateway.yaml:6:14: agents.support.api_key: the environment variable KEY is not set; "
            "set it, or give a default: ${KEY:-...}"
        ),
        "gateway.yaml:7:10: server.prot: unknown key; did you mean 'port'?",
        "gateway.yaml:8:17: limits.parts: must be at least 1, not 0",
        "command line: server.host: must be text, not 5; put it in quotes",
        "environment: A2A_GATEWAY__LIMITS__STREAMS: must be a whole number, not 'many'",
        "environment: A2A_GATEWAY__STORAGE__URI: unknown key; did you mean 'url'?",
    ]


def test_a_problem_has_its_parts() -> None:
    with pytest.raises(ConfigInvalid) as refused:
        loaded(f"version: 2\n{AGENT}")
    assert refused.value.problems == (Problem("gateway.yaml", 1, 10, "version", "must be 1, not 2"),)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("api_key: [sk-secret]", "6:14: agents.support.api_key: must be text"),
        ("headers: {X: {sk-secret: 1}}", "6:18: agents.support.headers.X: must be text"),
        ("headers: sk-secret", "6:14: agents.support.headers: must be a mapping (lines of `key: value`)"),
        ("api_kye: sk-secret", "6:5: agents.support.api_kye: unknown key; did you mean 'api_key'?"),
        ("api_key: test-secret", "6:14: agents.support.api_key: is a key for tests: ***"),
    ],
)
def test_a_secret_is_never_shown(line: str, message: str) -> None:
    assert refusal(f"{FILE}    {line}") == f"gateway.yaml:{message}"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("push: {encryption_key: must}", "push.encryption_key: must have at least 32 characters"),
        (
            "push: {proxy: 'http://host:port'}",
            ("push.proxy: must be the address of a proxy, as http://host:port or http://user:password@host:port"),
        ),
        (
            "cards: {signing: {keys: [PEM]}}",
            (
                "cards.signing.keys[0]: must be a key in PEM (BEGIN PRIVATE KEY or BEGIN PUBLIC KEY), "
                "without a passphrase"
            ),
        ),
    ],
)
def test_a_secret_that_is_a_part_of_the_problem_s_own_words_takes_nothing_from_them(section: str, message: str) -> None:
    assert refusal(f"{FILE}{section}").partition(": ")[2] == message


def test_a_text_too_short_for_a_secret_masks_no_parts_of_words() -> None:
    message = refusal(f"{FILE}    auth: {{type: key, key: es}}").partition(": ")[2]
    assert message == "agents.support.auth.key: must not be one of these: e, es"


def test_a_secret_is_masked_wherever_the_configuration_is_printed() -> None:
    config = loaded(f"{FILE}    api_key: sk-secret\n    headers: {{X: sk-secret}}")
    assert "sk-secret" not in f"{config!r} {config} {config.model_dump_json()}"


ENVIRONMENT = {
    "no value": (
        {"A2A_GATEWAY__AGENTS__SUPPORT__API_KEY": " "},
        "A2A_GATEWAY__AGENTS__SUPPORT__API_KEY: is empty; give it a value (null for none), or remove it",
    ),
    "one underscore": (
        {"A2A_GATEWAY__SERVER_PORT": "1"},
        "A2A_GATEWAY__SERVER_PORT: names no setting; did you mean A2A_GATEWAY__SERVER__PORT?",
    ),
    "one underscore further down": (
        {"A2A_GATEWAY__AGENTS__SUPPORT__CARD_INPUT_MODES": "1"},
        (
            "A2A_GATEWAY__AGENTS__SUPPORT__CARD_INPUT_MODES: names no setting; "
            "did you mean A2A_GATEWAY__AGENTS__SUPPORT__CARD__INPUT_MODES?"
        ),
    ),
    "no setting": ({"A2A_GATEWAY__": "x"}, "A2A_GATEWAY__: names no setting; write it like A2A_GATEWAY__SERVER__PORT"),
    "the same twice": (
        {"A2A_GATEWAY__SERVER__PORT": "1", "a2a_gateway__server__port": "2"},
        "a2a_gateway__server__port: sets the same as A2A_GATEWAY__SERVER__PORT; remove one of them",
    ),
    "below a value": (
        {"A2A_GATEWAY__VERSION__X": "1"},
        "A2A_GATEWAY__VERSION__X: cannot be set, because version is not a mapping",
    ),
    "wrong inside of a list": (
        {"A2A_GATEWAY__AGENTS__SUPPORT__CARD__INPUT_MODES": "[text]"},
        "A2A_GATEWAY__AGENTS__SUPPORT__CARD__INPUT_MODES[0]: must be a media type such as text/plain, not 'text'",
    ),
    "bytes that are no text": ({"A2A_GATEWAY__SERVER__HOST": "\udcff"}, "A2A_GATEWAY__SERVER__HOST: is not UTF-8 text"),
    "unknown agent": (
        {"A2A_GATEWAY__AGENTS__SUPORT__MODEL": "m"},
        "agents.suport.type: is required, but missing; known types: openai-chat, python",
    ),
}


@pytest.mark.parametrize(("env", "message"), ENVIRONMENT.values(), ids=ENVIRONMENT.keys())
def test_a_wrong_variable_is_named(env: dict[str, str], message: str) -> None:
    assert refusal(FILE, env) == f"environment: {message}"


# --- what works -------------------------------------------------------------------------------------------------------


def test_the_smallest_file_has_every_default() -> None:
    config = loaded(FILE)
    agent = config.agents["support"]
    assert (config.server.host, config.server.port, config.auth.mode) == ("127.0.0.1", 8080, "none")
    assert config.storage.url == "sqlite:////srv/gateway/data/gateway.db"
    assert (agent.name, agent.type, agent.settings) == ("support", "openai-chat", ChatSettings(model="m"))
    assert (agent.busy_context, agent.idempotency, agent.history.owner) == ("queue", "negotiated", None)


def test_idempotency_can_be_off() -> None:
    assert loaded(f"{FILE}    idempotency: off").agents["support"].idempotency == "off"


def test_an_alias_repeats_what_its_anchor_names() -> None:
    text = f"{FILE}    retry: &slow {{attempts: 9, pause: 2m}}\n  b: {{type: openai-chat, model: n, retry: *slow}}"
    assert settings(loaded(text), "b").retry == settings(loaded(text)).retry == Retry(attempts=9, pause="2m")


def test_a_value_that_is_wholly_a_reference_gets_the_type_of_its_text() -> None:
    assert loaded(f"{FILE}server:\n  port: ${{PORT:-8081}}").server.port == 8081


@pytest.mark.parametrize("value", ["1" * 40, "1e999", ".nan"])
def test_a_key_may_look_like_a_number_that_no_setting_can_have(value: str) -> None:
    assert settings(loaded(f"{FILE}    api_key: ${{KEY}}", {"KEY": value})).api_key == SecretStr(value)


@pytest.mark.parametrize("value", ["-1e999", ".nan"])
def test_a_variable_brings_no_number_that_no_setting_can_have(value: str) -> None:
    text = f"{FILE}    card:\n      extensions:\n      - uri: x\n        params:\n          a: ${{N}}"
    assert "agents.support.card.extensions[0].params.a: must be a " in refusal(text, {"N": value})


def test_a_key_made_of_digits_stays_a_key() -> None:
    key = settings(loaded(f"{FILE}    api_key: ${{KEY}}", {"KEY": "12345"})).api_key
    assert key == SecretStr("12345")


@pytest.mark.parametrize("value", ["", " ", "\n"])
def test_an_empty_variable_is_no_key_unless_there_need_be_none(value: str) -> None:
    problem = "the environment variable KEY is empty; set it, or write ${KEY:-} if there need be none"
    assert (
        refusal(f"{FILE}    api_key: ${{KEY}}", {"KEY": value})
        == f"gateway.yaml:6:14: agents.support.api_key: {problem}"
    )
    assert refusal(f"{FILE}    headers: {{X: 'Bearer ${{KEY}}'}}", {"KEY": value}).endswith(f"headers.X: {problem}")
    assert settings(loaded(f"{FILE}    api_key: ${{KEY:-}}", {"KEY": ""})).api_key is None


def test_an_empty_file_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("\n", encoding="utf-8")
    problem = f"agents.support.api_key: the file {tmp_path}/key is empty; write the value into it"
    assert refusal(f"{FILE}    api_key: ${{file:key}}", base_dir=tmp_path) == f"gateway.yaml:6:14: {problem}"


def test_files_are_read_relative_to_the_folder_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-1\n", encoding="utf-8")
    (tmp_path / "prompt.md").write_text("Be kind.\n", encoding="utf-8")
    text = (
        f"{FILE}    api_key: ${{file:key}}\n    instructions: {{file: ./prompt.md}}\n  b: {{type: python, ref: ./b.py}}"
    )
    config = loaded(text, base_dir=tmp_path)
    assert settings(config).api_key == SecretStr("sk-1")
    assert settings(config).instructions == "Be kind.\n"
    assert config.agents["b"].settings == PythonSettings(ref=tmp_path / "b.py")


def test_a_flag_beats_a_variable_which_beats_the_file_which_beats_the_default() -> None:
    text = f"{FILE}server: {{port: 1, host: 127.0.0.2, shutdown_grace: 1s}}"
    env = {"A2A_GATEWAY__SERVER__PORT": "2", "A2A_GATEWAY__SERVER__HOST": "127.0.0.3"}
    server = loaded(text, env, {"server.port": 3}).server
    assert (server.port, server.host, server.shutdown_grace) == (3, "127.0.0.3", 1.0)
    assert server.public_url == "http://127.0.0.3:3"


def test_a_variable_that_replaces_a_wrong_value_removes_its_problem() -> None:
    text = f"{FILE}    api_key: ${{MISSING}}\nserver: {{port: x}}"
    env = {"A2A_GATEWAY__SERVER__PORT": "2", "A2A_GATEWAY__AGENTS__SUPPORT__API_KEY": "777"}
    config = loaded(text, env)
    assert (config.server.port, settings(config).api_key) == (2, SecretStr("777"))


@pytest.mark.parametrize("spelled", ["MY-AGENT", "MY_AGENT", "my_agent"])
def test_a_variable_names_an_agent_in_any_case_with_either_dash(spelled: str) -> None:
    text = f"{HEAD}agents:\n  my-agent: {{type: openai-chat, model: m}}"
    config = loaded(text, {f"A2A_GATEWAY__AGENTS__{spelled}__RETRY__ATTEMPTS": "7"})
    assert settings(config, "my-agent").retry.attempts == 7


def test_variables_alone_can_make_an_agent_and_lists() -> None:
    env = {
        "A2A_GATEWAY__AGENTS__NEW_ONE__TYPE": "openai-chat",
        "A2A_GATEWAY__AGENTS__NEW_ONE__MODEL": "[m",
        "A2A_GATEWAY__AGENTS__NEW_ONE__STOP": "[a, b]",
    }
    found = settings(loaded(HEAD, env), "new-one")
    assert (found.model, found.stop) == ("[m", ["a", "b"])


def test_a_common_key_that_a_type_declares_reaches_the_type_too() -> None:
    config = loaded(f"{FILE}    history: {{owner: gateway}}")
    assert config.agents["support"].history == settings(config).history == HistoryConfig(owner="gateway")


# --- tools ------------------------------------------------------------------------------------------------------------

TOOLS = "tools:\n  github:\n    type: mcp\n    url: u\n"


def test_tools_are_a_section_of_their_own() -> None:
    config = loaded(f"{FILE}    tools: [github]\n{TOOLS}    allow: [a, 'b_*']\n    timeout: 5s\n    max_result: 1KiB\n")
    source = config.tools["github"]
    assert config.agents["support"].tools == ("github",)
    assert (source.type, source.allow, source.timeout, source.required, source.max_result) == (
        "mcp",
        ("a", "b_*"),
        5.0,
        True,
        1024,
    )
    assert isinstance(source.settings, McpSettings)
    assert source.settings.url == "u"


def test_a_variable_reaches_into_tools() -> None:
    config = loaded(
        FILE + TOOLS, {"A2A_GATEWAY__TOOLS__GITHUB__URL": "v", "A2A_GATEWAY__TOOLS__GITHUB__REQUIRED": "false"}
    )
    assert isinstance(settings := config.tools["github"].settings, McpSettings)
    assert (settings.url, config.tools["github"].required) == ("v", False)


WRONG_TOOLS = {
    "unknown source": (
        f"{FILE}    tools: [github, githb]\n{TOOLS}",
        (
            "gateway.yaml:6:21: agents.support.tools[1]: "
            "there is no 'githb' under `tools`; did you mean 'github'? There: github"
        ),
    ),
    "an approval for what is not there": (
        f"{FILE}    tools: [github]\n    approvals: [{{tool: 'git*'}}, {{tool: create_issue}}]\n{TOOLS}",
        (
            "gateway.yaml:7:40: agents.support.approvals[1].tool: 'create_issue' fits no tool of this agent: "
            "write SOURCE.TOOL, as 'github.*'; its sources are github"
        ),
    ),
    "an approval for a source of another agent": (
        (f"{FILE}    tools: [github]\n    approvals: [{{tool: 'githb.*'}}]\n{TOOLS}  githb: {{type: mcp, url: u}}\n"),
        (
            "gateway.yaml:7:24: agents.support.approvals[0].tool: 'githb.*' fits no tool of this agent: "
            "write SOURCE.TOOL, as 'github.*'; its sources are github"
        ),
    ),
    "an approval without tools": (
        f"{FILE}    approvals: [{{tool: 'github.*'}}]\n",
        (
            "gateway.yaml:6:24: agents.support.approvals[0].tool: 'github.*' fits no tool of this agent: "
            "write SOURCE.TOOL, as 'github.*'; it has no `tools`"
        ),
    ),
    "no tools at all": (
        f"{FILE}    tools: [github]\n",
        "gateway.yaml:6:13: agents.support.tools[0]: there is no 'github' under `tools`; There: nothing",
    ),
    "an entry of the service's own": (
        f"{FILE}    tools: [{{type: web_search}}]\n",
        "gateway.yaml:6:13: agents.support.tools[0]: must be text, not a mapping",
    ),
    "not a mapping": (
        f"{FILE}tools: [github]\n",
        "gateway.yaml:6:8: tools: must be a mapping of sources: a name, then its settings; not a list",
    ),
    "unknown type": (
        f"{FILE}tools: {{github: {{type: mpc, url: u}}}}\n",
        "gateway.yaml:6:24: tools.github.type: unknown type 'mpc'; did you mean 'mcp'? Known types: mcp",
    ),
    "misspelled keys of both models, and what is missing": (
        f"{FILE}tools: {{github: {{type: mcp, ur: u, timout: 5s}}}}\n",
        (
            "gateway.yaml:6:9: tools.github.url: is required, but missing\n"
            "gateway.yaml:6:29: tools.github.ur: unknown key; did you mean 'url'?\n"
            "gateway.yaml:6:36: tools.github.timout: unknown key; did you mean 'timeout'?"
        ),
    ),
    "bad values": (
        f"{FILE}{TOOLS}    timeout: 5\n    max_result: 0B\n",
        (
            "gateway.yaml:10:14: tools.github.timeout: must have a unit: write 5s, 5m or 5h, not 5\n"
            "gateway.yaml:11:17: tools.github.max_result: must be more than 0B, not '0B'; "
            "the units are B, kB, KiB, MB, MiB, GB, GiB"
        ),
    ),
    "tools of a type that takes none": (
        (
            f"{HEAD}agents:\n  mine:\n    type: python\n    ref: a\n    tools: [github]\n    client_tools: [{{name: camera}}]\n"
            "    approvals: [{tool: 'github.*'}]\ntools: {github: {type: mcp, url: u}}\n"
        ),
        "\n".join(
            f"gateway.yaml:{line}:5: agents.mine.{key}: an agent of type 'python' never learns of tools of the gateway or of "
            "its clients, so nothing would call them; remove this key, and let the agent itself call what it needs"
            for line, key in ((6, "tools"), (7, "client_tools"), (8, "approvals"))
        ),
    ),
    "a bad name": (
        f"{FILE}tools: {{Git Hub: {{type: mcp, url: u}}}}\n",
        "gateway.yaml:6:9: tools['Git Hub']: a source's name has 1 to 63 of a-z, 0-9 and -, and does not begin with -",
    ),
}


@pytest.mark.parametrize("case", WRONG_TOOLS)
def test_wrong_tools_say_where_and_what_to_do(case: str) -> None:
    text, message = WRONG_TOOLS[case]
    assert refusal(text) == message
