"""The protocol version of a request."""

from collections.abc import Mapping

import pytest

from gateway.a2a.errors import VersionNotSupported
from gateway.a2a.wire.dialect import Dialect
from gateway.a2a.wire.dialects import HTTP_JSON, HTTP_JSON_BELOW_V1, JSON_RPC, negotiate, with_drafts


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


@pytest.mark.parametrize("version", ["1.1", "1.1.0", "1.1.7"])
@pytest.mark.parametrize("dialects", [JSON_RPC, HTTP_JSON], ids=["JSON-RPC", "HTTP+JSON"])
def test_a_draft_is_spoken_beside_the_final_versions(version: str, dialects: Mapping[str, Dialect]) -> None:
    spoken = with_drafts(dialects)

    assert negotiate(version, spoken).version == "1.1"
    assert {name: spoken[name] for name in dialects} == dialects


def test_a_draft_is_not_spoken_where_its_final_version_is_not() -> None:
    assert with_drafts(HTTP_JSON_BELOW_V1) == HTTP_JSON_BELOW_V1
