"""Versions, extensions, idempotency keys and event numbers in headers. Source: A2A 1.0, sections 3.2.6, 3.6 and 4.6."""

import pytest

from gateway.a2a.tool_calls import URI as TOOL_CALLS
from gateway.config.agents import ExtensionConfig
from tests.interaction import asgi
from tests.interaction.harness import NEEDED, SEND, Binding, Gateway, Refusal, agent, invalid_params


@pytest.mark.parametrize("version", ["1.0", "1.0.0", "1.0.7", " 1.0 "])
async def test_version_1_0_is_spoken_whatever_its_patch(gateway: Gateway, version: str) -> None:
    answer = await gateway.ask("SendMessage", SEND, a2a_version=version)

    assert answer.status == 200


def not_supported(asked: str, binding: Binding) -> Refusal:
    supported = ", ".join(binding.versions)
    return Refusal(
        -32009,
        400,
        "FAILED_PRECONDITION",
        "VERSION_NOT_SUPPORTED",
        f"A2A version {asked} is not supported; supported: {supported}{binding.elsewhere}",
        metadata={"supportedVersions": supported},
    )


@pytest.mark.parametrize("version", ["0.2", "1.1", "2.0", "1", "v1.0", "1.0.0.0", "latest", "1.0, 0.3", "x" * 50])
async def test_other_versions_are_refused_with_those_there_are(gateway: Gateway, version: str) -> None:
    answer = await gateway.ask("SendMessage", SEND, a2a_version=version)

    assert (answer.status, answer.json) == gateway.binding.refusal(not_supported(repr(version), gateway.binding))
    assert gateway.operations.calls == []


async def test_no_version_means_0_3(jsonrpc: Gateway) -> None:
    answer = await jsonrpc.ask("SendMessage", SEND, a2a_version="")

    assert answer.json["error"]["code"] == -32601
    assert answer.json["error"]["message"] == (
        "Method not found: 'SendMessage' is a method of A2A 1.0: send A2A-Version: 1.0, because a request without it is one "
        "of A2A 0.3"
    )
    assert jsonrpc.operations.calls == []


async def test_an_address_of_1_0_speaks_no_0_3(rest: Gateway) -> None:
    answer = await rest.ask("SendMessage", SEND, a2a_version="")

    refusal = not_supported("0.3 (assumed without A2A-Version)", rest.binding)
    assert (answer.status, answer.json) == rest.binding.refusal(refusal)


@pytest.mark.parametrize("name", ["A2A-Version", "a2a-version"])
async def test_the_version_may_be_a_request_parameter(gateway: Gateway, name: str) -> None:
    exchange = gateway.binding.ask("SendMessage", SEND)

    answer = await gateway.request(exchange.method, f"{exchange.target}?{name}=1.0", exchange.body, a2a_version="")

    assert answer.status == 200


async def test_the_header_wins_over_the_request_parameter(gateway: Gateway) -> None:
    exchange = gateway.binding.ask("SendMessage", SEND)

    answer = await gateway.request(
        exchange.method, f"{exchange.target}?A2A-Version=1.0", exchange.body, a2a_version="7.0"
    )

    assert (answer.status, answer.json) == gateway.binding.refusal(not_supported("'7.0'", gateway.binding))


@pytest.mark.parametrize("versions", [("1.0", "0.3"), ("0.3", "1.0"), ("1.0", "9.9"), ("1.0", "")])
async def test_two_different_versions_are_refused(gateway: Gateway, versions: tuple[str, ...]) -> None:
    exchange = gateway.binding.ask("SendMessage", SEND)
    given = [header for header in gateway.headers({}) if header[0].lower() != "a2a-version"]
    headers = [*given, *(("A2A-Version", version) for version in versions)]

    answer = await asgi.request(gateway.app, exchange.method, exchange.target, headers, exchange.body)

    assert (answer.status, answer.json) == gateway.binding.refusal(invalid_params("A2A-Version", "is given twice"))
    assert gateway.operations.calls == []


async def test_two_different_versions_in_the_query_are_refused(gateway: Gateway) -> None:
    exchange = gateway.binding.ask("SendMessage", SEND)
    target = f"{exchange.target}?A2A-Version=1.0&a2a-version=0.3"

    answer = await gateway.request(exchange.method, target, exchange.body, a2a_version="")

    assert (answer.status, answer.json) == gateway.binding.refusal(invalid_params("A2A-Version", "is given twice"))
    assert gateway.operations.calls == []


async def test_a_declared_extension_is_activated_and_named_in_the_answer(gateway: Gateway) -> None:
    answer = await gateway.ask("SendMessage", SEND, a2a_extensions=f"https://unknown.example, {TOOL_CALLS}")

    assert answer.header("a2a-extensions") == TOOL_CALLS
    assert gateway.operations.calls[0][1].extensions == {TOOL_CALLS}


async def test_extensions_of_several_headers_count_together(binding: Binding) -> None:
    gateway = Gateway(binding, agent("echo", None, (ExtensionConfig(uri=NEEDED),)))
    exchange = binding.ask("SendMessage", SEND)
    headers = [*gateway.headers({}), ("A2A-Extensions", TOOL_CALLS), ("A2A-Extensions", f",{NEEDED},{NEEDED}")]

    answer = await asgi.request(gateway.app, exchange.method, exchange.target, headers, exchange.body)

    assert answer.header("a2a-extensions") == f"{TOOL_CALLS}, {NEEDED}"


async def test_unknown_extensions_are_ignored(gateway: Gateway) -> None:
    answer = await gateway.ask("SendMessage", SEND, a2a_extensions="https://unknown.example")

    assert (answer.status, answer.header("a2a-extensions")) == (200, None)


@pytest.mark.parametrize(
    ("operation", "params"),
    [("SendMessage", SEND), ("SendStreamingMessage", SEND), ("GetTask", {"id": "a"}), ("ListTasks", {})],
)
async def test_a_required_extension_must_be_asked_for(binding: Binding, operation: str, params: dict[str, str]) -> None:
    gateway = Gateway(binding, agent("echo", None, (ExtensionConfig(uri=NEEDED, required=True),)))

    answer = await gateway.ask(operation, params)

    refusal = Refusal(
        -32008,
        400,
        "FAILED_PRECONDITION",
        "EXTENSION_SUPPORT_REQUIRED",
        f"this agent requires the extension {NEEDED}; name it in A2A-Extensions",
        metadata={"extensions": NEEDED},
    )
    assert (answer.status, answer.json) == binding.refusal(refusal)
    assert gateway.operations.calls == []


async def test_a_required_extension_that_is_asked_for_is_activated(binding: Binding) -> None:
    gateway = Gateway(binding, agent("echo", None, (ExtensionConfig(uri=NEEDED, required=True),)))

    answer = await gateway.ask("SendMessage", SEND, a2a_extensions=NEEDED)

    assert (answer.status, answer.header("a2a-extensions")) == (200, NEEDED)


@pytest.mark.parametrize(
    ("value", "description"),
    [
        (",".join(f"https://e.example/{n}" for n in range(51)), "must not name more than 50 extensions"),
        (
            "https://e.example/" + "x" * 512,
            f"must hold URIs of up to 512 characters, not 'https://e.example/{'x' * 79}…'",
        ),
        ("a b", "must hold URIs of up to 512 characters, not 'a b'"),
    ],
)
async def test_a_bad_list_of_extensions_is_refused(gateway: Gateway, value: str, description: str) -> None:
    answer = await gateway.ask("SendMessage", SEND, a2a_extensions=value)

    assert (answer.status, answer.json) == gateway.binding.refusal(invalid_params("A2A-Extensions", description))


async def test_the_idempotency_key_reaches_the_core(gateway: Gateway) -> None:
    await gateway.ask("SendMessage", SEND, idempotency_key="key/1")

    assert gateway.operations.calls[0][1].idempotency_key == "key/1"


@pytest.mark.parametrize("key", ["a b", "ä", "x" * 257, "\x00", " "])
async def test_a_bad_idempotency_key_is_refused(gateway: Gateway, key: str) -> None:
    answer = await gateway.ask("SendMessage", SEND, idempotency_key=key)

    refusal = invalid_params("Idempotency-Key", "must be 1 to 256 visible ASCII characters")
    assert (answer.status, answer.json) == gateway.binding.refusal(refusal)
    assert gateway.operations.calls == []


async def test_two_different_idempotency_keys_are_refused(gateway: Gateway) -> None:
    exchange = gateway.binding.ask("SendMessage", SEND)
    headers = [*gateway.headers({}), ("Idempotency-Key", "a"), ("Idempotency-Key", "b")]

    answer = await asgi.request(gateway.app, exchange.method, exchange.target, headers, exchange.body)

    assert (answer.status, answer.json) == gateway.binding.refusal(invalid_params("Idempotency-Key", "is given twice"))


@pytest.mark.parametrize("number", ["42", "42 ", "42\t"])
async def test_the_last_event_id_reaches_the_core(gateway: Gateway, number: str) -> None:
    await gateway.ask("GetTask", {"id": "a"}, last_event_id=number)

    assert gateway.operations.calls[0][1].last_event_id == 42


@pytest.mark.parametrize("number", ["-1", "1.0", "abc", "9" * 19, "٤"])
async def test_a_bad_last_event_id_is_refused(gateway: Gateway, number: str) -> None:
    exchange = gateway.binding.ask("SubscribeToTask", {"id": "a"})
    headers = [*gateway.headers({}), ("Last-Event-ID", number.encode().decode("latin-1"))]

    answer = await asgi.request(gateway.app, exchange.method, exchange.target, headers, exchange.body)

    shown = repr(number.encode().decode("latin-1"))
    refusal = invalid_params("Last-Event-ID", f"must be the number of an event, not {shown}")
    assert (answer.status, answer.json) == gateway.binding.refusal(refusal)
