"""The gRPC port of a configuration, and of a whole gateway process."""

import signal
import sys
from contextlib import closing
from pathlib import Path

import grpc
import httpx2
import pytest
from a2a.types import a2a_pb2

from gateway.app.grpc_port import open_grpc
from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid
from tests.gateway.grpc.calling import VERSION, path
from tests.running import child_gateways
from tests.support.certificates import certificate

AGENT = 'echo: {type: python, ref: "gateway.cli.demo.agent:reply"}'


def config(server: str, folder: Path = Path()) -> GatewayConfig:
    text = f"version: 1\nserver: {server}\nagents:\n  {AGENT}\n"
    return load(text, source="test.yaml", env={}, plugins=Registry(), base_dir=folder)


def refusal(server: str, folder: Path = Path()) -> str:
    with pytest.raises(ConfigInvalid) as refused:
        config(server, folder)
    [problem] = refused.value.problems
    return f"{problem.path}: {problem.message}"


def test_without_the_setting_there_is_no_port() -> None:
    assert open_grpc(config("{}")) is None


def test_without_the_package_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)

    with pytest.raises(ConfigInvalid) as refused:
        open_grpc(config("{grpc: {port: 0}}"))

    [problem] = refused.value.problems
    assert problem.path == "server.grpc"
    assert problem.message.endswith("install it with: pip install 'a2a-gateway[grpc]'")


def test_a_taken_port_is_a_problem_of_its_setting() -> None:
    first = open_grpc(config("{grpc: {port: 0}}"))
    assert first is not None

    with closing(first), pytest.raises(ConfigInvalid) as refused:
        open_grpc(config(f"{{grpc: {{port: {first.port}}}}}"))

    [problem] = refused.value.problems
    assert problem.path == "server.grpc.port"
    assert problem.message.startswith(f"cannot listen on 127.0.0.1:{first.port}")


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("{grpc: {port: 50051}}", "localhost:50051"),
        ("{public_url: 'https://a2a.example:8443', grpc: {port: 50051}}", "a2a.example:50051"),
        ("{public_url: 'http://[::1]:8080', grpc: {port: 50051}}", "[::1]:50051"),
        ("{grpc: {port: 50051, public_address: 'grpc.example:443'}}", "grpc.example:443"),
        ("{}", None),
    ],
)
def test_the_address_that_cards_say(server: str, address: str | None) -> None:
    assert config(server.replace("{grpc", "{public_url: 'http://localhost', grpc")).server.grpc_address == address


@pytest.mark.parametrize(
    "address", ["grpc.example", "https://grpc.example:443", "a@b:443", "grpc.example:0", ":443", "a:b"]
)
def test_a_public_address_is_a_host_and_a_port(address: str) -> None:
    said = refusal(f"{{grpc: {{port: 0, public_address: '{address}'}}}}")

    assert said.startswith("server.grpc.public_address: must be a host and a port, as grpc.example.com:443")


def test_certificates_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    file = certificate(tmp_path, "localhost")
    (tmp_path / "other.pem").write_text("nothing")

    good = config(f"{{grpc: {{port: 0, tls: {{certificate: {file.name}, key: {file.name}}}}}}}", tmp_path).server.grpc
    assert good is not None
    assert good.tls is not None
    assert (good.tls.certificate, good.tls.key) == (file, file)
    said = refusal(f"{{grpc: {{port: 0, tls: {{certificate: {file.name}, key: other.pem}}}}}}", tmp_path)
    assert "hold no certificate in PEM with its unencrypted key" in said
    said = refusal(f"{{grpc: {{port: 0, tls: {{certificate: {file.name}, key: none.pem}}}}}}", tmp_path)
    assert "cannot be read: no such file or directory" in said


async def test_a_process_serves_grpc_where_its_card_says_and_drains(tmp_path: Path) -> None:
    settings = "server: {port: 0, grpc: {port: 0}}"
    async with child_gateways(AGENT, tmp_path, settings=settings) as start:
        child = await start()
        async with httpx2.AsyncClient(trust_env=False) as http:
            card = (await http.get(f"{child.url}/a2a/echo/.well-known/agent-card.json")).json()
        [interface] = [each for each in card["supportedInterfaces"] if each["protocolBinding"] == "GRPC"]
        message = a2a_pb2.Message(message_id="m", role=a2a_pb2.Role.ROLE_USER, parts=[a2a_pb2.Part(text="Hello")])
        request = a2a_pb2.SendMessageRequest(message=message, tenant=interface["tenant"])
        async with grpc.aio.insecure_channel(interface["url"]) as channel:
            send = channel.unary_unary(
                path("SendMessage"),
                request_serializer=a2a_pb2.SendMessageRequest.SerializeToString,
                response_deserializer=a2a_pb2.SendMessageResponse.FromString,
            )
            answer = await send(request, metadata=VERSION, timeout=30)
            child.signal(signal.SIGTERM)
            assert await child.ended() == 0

    assert answer.task.status.state == a2a_pb2.TASK_STATE_COMPLETED
