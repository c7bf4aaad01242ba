"""The settings: their defaults, their form as text, and the address that must not be open."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from gateway.app.build import quota_limits
from gateway.config.agents import AgentConfig
from gateway.config.gateway import (
    ApiKeysConfig,
    AuthConfig,
    GatewayConfig,
    LimitsConfig,
    ServerConfig,
    open_listen_problem,
)
from gateway.config.settings import (
    Duration,
    LocalPath,
    Size,
    TextOrFile,
    WebUrl,
    duration,
    duration_text,
    size,
    size_text,
)
from gateway.config.storage import StorageConfig
from gateway.config.tools import ApprovalConfig, ClientToolConfig, ToolCallsConfig
from gateway.operations.quotas import QuotaLimits


class NoSettings(BaseModel):
    pass


def gateway(host: str) -> GatewayConfig:
    agent = AgentConfig(type="python", name="a", settings=NoSettings())
    storage = StorageConfig(settings=NoSettings())
    return GatewayConfig(version=1, server=ServerConfig(host=host), storage=storage, agents={"a": agent})


def test_a_public_url_whose_host_is_no_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"its ASCII form \(IDNA\) cannot be made"):
        ServerConfig(public_url="https://ü%zz.example")


@pytest.mark.parametrize("text", ["", "30", "s", "-1s", "1 s", "1h30m", "1.2345s", "PT30S", "30S", "1w", "1e400s"])
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration such as 500ms, 30s, 15m, 1h or 7d"):
        duration(text)


@pytest.mark.parametrize("text", ["", "8", "MB", "-1MB", "8 MB", "1.5MiB", "8mb", "8M", "1e400B"])
def test_a_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a size such as 512B, 64KiB, 8MiB or 10MB"):
        size(text)


@pytest.mark.parametrize("text", ["36501d", "9999999999s", "9" * 400 + "ms", "0" * 5000 + "9" * 40 + "h"])
def test_a_duration_that_is_too_long_is_refused_with_the_longest_one(text: str) -> None:
    with pytest.raises(ValueError, match="must be at most 36500d"):
        duration(text)


@pytest.mark.parametrize("text", ["1000000000GiB", "9" * 400 + "B", "9" * 5000 + "kB"])
def test_a_size_that_is_too_large_is_refused_with_the_largest_one(text: str) -> None:
    with pytest.raises(ValueError, match="must be at most 999999999GiB"):
        size(text)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Duration, 30, "must have a unit: write 30s, 30m or 30h"),
        (Duration, 0.5, "must have a unit: write 0.5s, 0.5m or 0.5h"),
        (Duration, float("inf"), "must be a duration such as 500ms, 30s, 15m, 1h or 7d"),
        (Duration, True, "must be a duration such as 500ms, 30s, 15m, 1h or 7d"),
        (Duration, None, "must be a duration such as 500ms, 30s, 15m, 1h or 7d"),
        (Size, 8, "must have a unit: write 8B, 8KiB or 8MiB"),
        (Size, [], "must be a size such as 512B, 64KiB, 8MiB or 10MB"),
        (WebUrl, "ftp://x", "must be an address that starts with http:// or https:// and a host"),
        (WebUrl, "http://", "must be an address that starts with http:// or https:// and a host"),
        (WebUrl, "http://a b", "must be an address that starts with http:// or https:// and a host"),
        (WebUrl, "http://x:99999", "must be an address that starts with http:// or https:// and a host"),
        (WebUrl, "http://[::1", "must be an address that starts with http:// or https:// and a host"),
        (TextOrFile, {"path": "x"}, "must be text, or a mapping with the one key `file` (a path)"),
        (TextOrFile, {"file": "x", "more": 1}, "must be text, or a mapping with the one key `file` (a path)"),
        (TextOrFile, ["x"], "must be text, or a mapping with the one key `file` (a path)"),
    ],
)
def test_a_value_of_the_wrong_form_says_how_to_write_it(kind: Any, value: object, message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(kind).validate_python(value)
    assert [error["msg"] for error in refused.value.errors()] == [message]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "the file {path} cannot be read: no such file or directory"),
        (b"\xff\xfe", "the file {path} is not UTF-8 text"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_reason(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "prompt.md"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(TextOrFile).validate_python({"file": "prompt.md"}, context={"base_dir": tmp_path})
    assert refused.value.errors()[0]["msg"] == "Value error, " + message.format(path=path)


@pytest.mark.parametrize("url", ["http://x/?a=b", "http://x/#a"])
def test_a_public_address_cannot_have_a_query_or_a_fragment(url: str) -> None:
    with pytest.raises(ValidationError):
        ServerConfig(public_url=url)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "gateway.example", "2001:db8::1"])
def test_an_open_address_without_authentication_is_refused(host: str) -> None:
    problem = open_listen_problem(gateway(host), insecure=False)
    assert str(problem) == (
        f"server.host: '{host}' can be reached from other machines and auth.mode is none, "
        "so anyone could use the agents; ask for API keys (auth: {mode: any_of, api_keys: {enabled: true}}), "
        "listen on 127.0.0.1, or start with --insecure if that is what you want"
    )
    assert open_listen_problem(gateway(host), insecure=True) is None
    keys = AuthConfig(mode="any_of", api_keys=ApiKeysConfig(enabled=True))
    assert open_listen_problem(gateway(host).model_copy(update={"auth": keys}), insecure=False) is None


@pytest.mark.parametrize(
    ("mode", "enabled", "message"),
    [
        ("none", True, "api_keys are enabled, but nobody is asked for one: set `mode: any_of`"),
        ("any_of", False, "mode: any_of needs a way to say who calls: set `api_keys: {enabled: true}`"),
    ],
)
def test_authentication_that_would_not_do_what_it_seems_to_is_refused(mode: Any, enabled: bool, message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        AuthConfig(mode=mode, api_keys=ApiKeysConfig(enabled=enabled))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_a_loopback_address_is_open_to_nobody_else(host: str) -> None:
    assert open_listen_problem(gateway(host), insecure=False) is None


@pytest.mark.parametrize(
    ("text", "seconds", "shortest"),
    [
        ("500ms", 0.5, "500ms"),
        ("1.5s", 1.5, "1500ms"),
        ("30s", 30, "30s"),
        ("900s", 900, "15m"),
        ("1h", 3600, "1h"),
        ("7d", 604800, "7d"),
        ("0s", 0, "0s"),
    ],
)
def test_a_duration_is_seconds_and_is_written_back_in_its_largest_unit(
    text: str, seconds: float, shortest: str
) -> None:
    assert (duration(text), duration_text(seconds)) == (seconds, shortest)


@pytest.mark.parametrize(
    ("text", "count", "shortest"),
    [
        ("0B", 0, "0B"),
        ("512B", 512, "512B"),
        ("64KiB", 65536, "64KiB"),
        ("8MB", 8_000_000, "8MB"),
        ("1024KiB", 1_048_576, "1MiB"),
        ("3kB", 3000, "3kB"),
        ("2GiB", 2_147_483_648, "2GiB"),
    ],
)
def test_a_size_is_bytes_and_is_written_back_in_its_largest_unit(text: str, count: int, shortest: str) -> None:
    assert (size(text), size_text(count)) == (count, shortest)


def test_a_path_is_relative_to_the_folder_of_the_file() -> None:
    read = TypeAdapter(LocalPath).validate_python
    assert read("./a/b.py", context={"base_dir": Path("/srv")}) == Path("/srv/a/b.py")
    assert read("/abs/b.py", context={"base_dir": Path("/srv")}) == Path("/abs/b.py")


def test_requests_may_not_be_deeper_than_what_can_be_stored() -> None:
    assert LimitsConfig(json_depth=20).json_depth == 20
    with pytest.raises(ValidationError, match="less than or equal to 100"):
        LimitsConfig(json_depth=101)


def test_the_limits_that_hold_when_nobody_sets_any() -> None:
    assert LimitsConfig() == LimitsConfig.model_construct(
        request_body=8 * 1024 * 1024,
        json_depth=100,
        parts=1000,
        reference_ids=100,
        extensions=50,
        metadata=64 * 1024,
        id_length=256,
        turn_timeout=900.0,
        queued_turns_per_context=8,
        streams=2000,
        stream_buffer_events=10_000,
        stream_buffer_bytes=1024 * 1024,
        stream_blocked=30.0,
        stream_keepalive=15.0,
    )


@pytest.mark.parametrize(
    ("server", "url"),
    [
        (ServerConfig(), "http://127.0.0.1:8080"),
        (ServerConfig(host="0.0.0.0", port=9), "http://localhost:9"),
        (ServerConfig(host="::1"), "http://[::1]:8080"),
        (ServerConfig(public_url="https://agents.example/base/"), "https://agents.example/base"),
        (ServerConfig(public_url="https://bücher.example"), "https://xn--bcher-kva.example"),
        (ServerConfig(public_url="https://BÜCHER.example:8443/läden"), "https://xn--bcher-kva.example:8443/läden"),
    ],
)
def test_the_public_address_follows_from_where_the_gateway_listens_unless_it_is_given(
    server: ServerConfig, url: str
) -> None:
    assert server.public_url == url


def test_a_port_that_the_system_chose_appears_in_the_public_address_unless_that_was_given() -> None:
    chosen = ServerConfig(port=0).bound_to(4711)
    assert (chosen.port, chosen.public_url) == (4711, "http://127.0.0.1:4711")
    assert ServerConfig(port=0, public_url="https://x.example").bound_to(4711).public_url == "https://x.example"


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        ServerConfig().port = 1  # type: ignore[misc]


def test_a_printed_configuration_has_its_durations_and_sizes_as_the_file_writes_them() -> None:
    assert LimitsConfig().model_dump(mode="json", include={"turn_timeout", "metadata"}) == {
        "turn_timeout": "15m",
        "metadata": "64KiB",
    }


@pytest.mark.parametrize(
    ("mode", "given", "streams"), [("none", None, 0), ("any_of", None, 100), ("none", 5, 5), ("any_of", 0, 0)]
)
def test_streams_are_limited_by_default_where_principals_differ(mode: Any, given: int | None, streams: int) -> None:
    auth = AuthConfig(mode=mode, api_keys=ApiKeysConfig(enabled=mode != "none"))
    limits = LimitsConfig(streams_per_principal=given)
    config = gateway("127.0.0.1").model_copy(update={"auth": auth, "limits": limits})
    assert quota_limits(config) == QuotaLimits(streams=streams)


def test_approvals_and_client_tools_have_defaults_that_ask_nobody() -> None:
    agent = AgentConfig(type="python", name="a", settings=NoSettings())
    assert (agent.approvals, agent.client_tools) == ((), ())
    assert (agent.mixed_batch, agent.new_task_while_waiting, agent.approval_timeout) == ("eager", "reject", 86400.0)


def test_a_rule_asks_unless_it_says_otherwise() -> None:
    assert ApprovalConfig(tool="github.*") == ApprovalConfig(tool="github.*", ask=True, arguments={})


def test_a_client_tool_may_be_declared_once() -> None:
    tool = ClientToolConfig(name="camera")
    with pytest.raises(ValidationError, match="client_tools has 'camera' twice"):
        AgentConfig(type="python", name="a", settings=NoSettings(), client_tools=(tool, tool))


@pytest.mark.parametrize("path", ["$.args.a", "$['response'].rows[*].email", "$..token", "$.*.token"])
def test_a_mask_points_into_a_call(path: str) -> None:
    assert ToolCallsConfig(redact=(path,)).redact == (path,)


@pytest.mark.parametrize("path", ["$.password", "$.arg.password", "$[0]", "$.data.args.a"])
def test_a_mask_for_nothing_is_refused(path: str) -> None:
    with pytest.raises(ValidationError, match=r"must begin with \$\.args"):
        ToolCallsConfig(redact=(path,))


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "wetter.heute"])
def test_a_client_tool_has_a_name_that_every_model_takes(name: str) -> None:
    with pytest.raises(ValidationError):
        ClientToolConfig(name=name)
