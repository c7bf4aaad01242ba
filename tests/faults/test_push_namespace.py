"""Addresses that are not loopback, in a network of their own: the gateway never connects to a private one."""

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.faults.namespace_world import PORT, PRIVATE, PUBLIC

_UNSHARE = ["unshare", "-rnm"]
_TAKES_SECONDS = 60


@cache
def _possible() -> bool:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    tried = [*_UNSHARE, "sh", "-c", "ip link set lo up && mount --bind /etc/hosts /etc/hosts"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not _possible():
        pytest.skip("this machine has no network namespaces for its users")
    folder = tmp_path_factory.mktemp("namespace")
    command = [*_UNSHARE, sys.executable, "-m", "tests.faults.namespace_world", str(folder)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=_TAKES_SECONDS, check=False, cwd=Path(__file__).parents[2]
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def test_public_addresses_get_what_is_posted(outcome: dict[str, Any]) -> None:
    assert outcome["connected"][PUBLIC] >= 3
    assert {"/literal", "/name"} <= outcome["paths"].keys()


def test_nothing_private_is_ever_connected_to(outcome: dict[str, Any]) -> None:
    assert set(outcome["connected"]) == {PUBLIC}


def test_what_leads_inside_is_refused_when_it_is_made(outcome: dict[str, Any]) -> None:
    refused = {url: told for url, told in outcome["told"].items() if " " in told}
    assert len(refused) == len(PRIVATE) + 5
    assert all("taskPushNotificationConfig.url: must not lead to" in told for told in refused.values())
    assert "10.0.0.1" not in refused[f"http://inside.example:{PORT}/"]


@pytest.mark.fault("W1")
def test_a_redirect_is_not_followed_and_a_name_that_changed_is_not_connected_to(outcome: dict[str, Any]) -> None:
    assert outcome["errors"] == {
        f"http://redirecting.example:{PORT}/redirect": "HTTP 307",
        f"http://rebinding.example:{PORT}/rebind": "the address must not lead to an address that is link-local",
    }
