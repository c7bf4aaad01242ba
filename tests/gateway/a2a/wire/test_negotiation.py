"""The protocol version of a request."""

import pytest

from gateway.a2a.errors import VersionNotSupported
from gateway.a2a.wire.dialects import HTTP_JSON, JSON_RPC, negotiate


@pytest.mark.parametrize("version", ["1.0", "1.0.0", "1.0.42", "01.0"])
def test_version_1_0_is_found_whatever_its_patch(version: str) -> None:
    assert negotiate(version, JSON_RPC).version == "1.0"
    assert negotiate(version, HTTP_JSON).version == "1.0"


@pytest.mark.parametrize("version", [None, "", "0.3", "0.3.0", "0.3.7", "00.3"])
def test_no_version_is_0_3(version: str | None) -> None:
    assert negotiate(version, JSON_RPC).version == "0.3"


@pytest.mark.parametrize("version", ["0.2", "0.4", "1.1", "10.0", "1", "1.x", "1.0-beta", "１.０", "9" * 9999])
def test_any_other_is_refused_with_those_there_are(version: str | None) -> None:
    with pytest.raises(VersionNotSupported) as caught:
        negotiate(version, JSON_RPC)

    assert caught.value.metadata == {"supportedVersions": "1.0, 0.3"}
    assert len(caught.value.message) < 200
