"""The files of deploy/ that need no proxy to be tried: schemas, units, and the limits that they share with the gateway."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # it has no stubs
import pytest
import yaml

from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.foundation.keep_alive import SERVER_KEEP_ALIVE
from gateway.http.routes import OPENAPI_PATH

DEPLOY = Path(__file__).parents[2] / "deploy"
CONFIGURATIONS = ["compose/gateway.yaml", "kubernetes/gateway.yaml"]
OF_REPLICAS = ["compose-replicas/gateway.yaml", "kubernetes-replicas/gateway.yaml"]
COMPOSE = ["compose", "compose-replicas"]
KUBERNETES = {"kubernetes": "StatefulSet", "kubernetes-replicas": "Deployment"}
"""The folders, and the kind of resource that runs the pods."""
UNIT = (DEPLOY / "systemd" / "a2a-gateway.service").read_text()
RESOURCES = sorted(
    f"{folder}/{path.name}"
    for folder in KUBERNETES
    for path in (DEPLOY / folder).glob("*.yaml")
    if path.name not in ("gateway.yaml", "kustomization.yaml")
)


SECRETS = {"OPENAI_API_KEY": "k", "LEDGER_PASSWORD": "p"}


def read(name: str) -> GatewayConfig:
    path = DEPLOY / name
    return load(path.read_text(), source=str(path), env=SECRETS, plugins=Registry(), base_dir=path.parent)


def number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_for_containers_is_valid_and_asks_for_keys(name: str) -> None:
    config = read(name)
    assert (config.auth.mode, config.server.host, config.storage.url) == (
        "any_of",
        "0.0.0.0",
        "sqlite:////data/gateway.db",
    )


@pytest.mark.parametrize("name", OF_REPLICAS)
def test_a_configuration_for_replicas_is_valid_shares_a_database_and_asks_for_keys(name: str) -> None:
    config = read(name)
    assert (config.auth.mode, config.server.host) == ("any_of", "0.0.0.0")
    assert config.storage.url.startswith("postgresql://gateway@")
    assert config.storage.settings.model_dump()["password"].get_secret_value() == "p"


@pytest.mark.parametrize("folder", COMPOSE)
def test_a_compose_file_follows_its_schema(folder: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run(
        [*command, str(DEPLOY / folder / "compose.yaml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


@pytest.mark.parametrize("name", RESOURCES)
def test_a_resource_of_kubernetes_follows_its_schema(name: str) -> None:
    for resource in documents((DEPLOY / name).read_text()):
        # kustomize adds the selector and the labels of the pods.
        if resource["kind"] in KUBERNETES.values():
            labels = {"app.kubernetes.io/name": "a2a-gateway"}
            resource["spec"] |= {"selector": {"matchLabels": labels}}
            resource["spec"]["template"]["metadata"] = {"labels": labels}
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("folder", KUBERNETES)
def test_a_kustomization_names_every_resource(folder: str) -> None:
    kustomization = yaml.safe_load((DEPLOY / folder / "kustomization.yaml").read_text())
    files = {f"{folder}/{name}" for name in kustomization["resources"] if name.endswith(".yaml")}
    assert files == {name for name in RESOURCES if name.startswith(f"{folder}/")}
    assert kustomization["configMapGenerator"][0]["files"] == ["gateway.yaml"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize(("folder", "kind"), KUBERNETES.items())
def test_what_kustomize_makes_of_the_resources_follows_the_schemas(folder: str, kind: str) -> None:
    command = ["kubectl", "kustomize", str(DEPLOY / folder)]
    made = documents(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for resource in made:
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
    [config] = [resource["metadata"]["name"] for resource in made if resource["kind"] == "ConfigMap"]
    [pods] = [resource["spec"]["template"] for resource in made if resource["kind"] in KUBERNETES.values()]
    assert [resource["kind"] for resource in made if resource["kind"] in KUBERNETES.values()] == [kind]
    assert {"name": "config", "configMap": {"name": config}} in pods["spec"]["volumes"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_no_fault_in_the_unit_and_little_exposure(tmp_path: Path) -> None:
    unit = tmp_path / "a2a-gateway.service"
    unit.write_text(UNIT.replace("/opt/a2a-gateway/bin/a2a-gateway", sys.executable))
    verified = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit)]
    exposure = subprocess.run(command, capture_output=True, text=True, check=False)
    assert exposure.returncode == 0, exposure.stdout


def test_whatever_stops_the_gateway_gives_it_longer_than_its_grace() -> None:
    grace = read("compose/gateway.yaml").server.shutdown_grace
    assert number(r"TimeoutStopSec=(\d+)\n", UNIT) > grace
    for folder in COMPOSE:
        compose = yaml.safe_load((DEPLOY / folder / "compose.yaml").read_text())
        assert number(r"(\d+)s", compose["services"]["gateway"]["stop_grace_period"]) > grace
    stateful = (DEPLOY / "kubernetes" / "statefulset.yaml").read_text()
    replicas = (DEPLOY / "kubernetes-replicas" / "deployment.yaml").read_text()
    assert number(r"terminationGracePeriodSeconds: (\d+)\n", stateful) > grace
    before = number(r'command: \[sleep, "(\d+)"\]', replicas)
    assert number(r"terminationGracePeriodSeconds: (\d+)\n", replicas) > before + grace


def test_replicas_are_more_than_one_and_a_drained_node_takes_one_at_a_time() -> None:
    compose = yaml.safe_load((DEPLOY / "compose-replicas" / "compose.yaml").read_text())
    [deployment] = documents((DEPLOY / "kubernetes-replicas" / "deployment.yaml").read_text())
    [budget] = documents((DEPLOY / "kubernetes-replicas" / "disruption-budget.yaml").read_text())
    assert compose["services"]["gateway"]["deploy"]["replicas"] > 1
    assert deployment["spec"]["replicas"] > 1
    assert budget["spec"]["maxUnavailable"] == 1


def test_the_ingress_passes_on_what_is_public_and_nothing_else() -> None:
    [rule] = yaml.safe_load((DEPLOY / "kubernetes" / "ingress.yaml").read_text())["spec"]["rules"]
    assert [(each["pathType"], each["path"]) for each in rule["http"]["paths"]] == [
        ("Prefix", "/a2a"),
        ("Prefix", "/.well-known/"),
        ("Exact", "/"),
        ("Exact", OPENAPI_PATH),
    ]


def test_proxies_wait_longer_than_a_turn_and_close_idle_connections_first() -> None:
    limits = read("compose/gateway.yaml").limits
    caddy = (DEPLOY / "caddy" / "Caddyfile").read_text()
    ingress = yaml.safe_load((DEPLOY / "kubernetes" / "ingress.yaml").read_text())["metadata"]["annotations"]
    prefix = "nginx.ingress.kubernetes.io/proxy-"
    assert int(ingress[f"{prefix}read-timeout"]) > limits.turn_timeout
    assert number(r"(\d+)m", ingress[f"{prefix}body-size"]) * 2**20 > limits.request_body
    for name in ("nginx/a2a-gateway.conf", "compose-replicas/nginx.conf"):
        nginx = (DEPLOY / name).read_text()
        assert number(r"proxy_read_timeout (\d+)m;", nginx) * 60 > limits.turn_timeout
        assert number(r"client_max_body_size (\d+)m;", nginx) * 2**20 > limits.request_body
        assert number(r"keepalive_timeout (\d+)s;", nginx) < SERVER_KEEP_ALIVE
    assert number(r"keepalive (\d+)s\n", caddy) < SERVER_KEEP_ALIVE
