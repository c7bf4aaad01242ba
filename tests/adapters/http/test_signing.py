"""Headers that are made for each request, and made anew where the service refuses them."""

from collections.abc import Mapping

import pytest

from adapters.http.client import HttpClient
from adapters.http.signing import Credential
from gateway.foundation.route import Route
from gateway.ports.adapter import AdapterError, ErrorClass
from tests.adapters.http.conftest import Connect, batches
from tests.adapters.raw_server import Exchange, StartRaw, plain


class _Numbered(Credential):
    """Gives "Token 1", and the next number each time that it is renewed, as long as numbers last."""

    def __init__(self, last: int = 9) -> None:
        self.number = 1
        self.last = last
        self.refused: list[Mapping[str, str]] = []
        self.closed = False

    async def __call__(self, method: str, url: str, body: bytes) -> Mapping[str, str]:
        return {"Authorization": f"Token {self.number}"}

    def renew(self, refused: Mapping[str, str]) -> bool:
        self.refused.append(refused)
        self.number += 1
        return self.number <= self.last

    async def aclose(self) -> None:
        self.closed = True


async def _accepting(exchange: Exchange, *tokens: str) -> None:
    if exchange.request.header("Authorization") in tokens:
        await exchange.stream(b"data: 1\n\n")
    else:
        await exchange.send(plain("401 Unauthorized", b"expired"))


async def test_each_request_is_signed_with_what_is_sent(raw: StartRaw, connect: Connect) -> None:
    signed = []

    async def sign(method: str, url: str, body: bytes) -> dict[str, str]:
        signed.append((method, url, body))
        return {"authorization": f"Signed {len(signed)}"}

    server = await raw(lambda exchange: exchange.stream(b"data: 1\n\n"))
    client = connect(sign)
    await batches(client, f"{server.url}/model/a%3Ab c?x=1", b"{}")
    await client.request("DELETE", f"{server.url}/d")
    assert signed == [
        ("POST", f"{server.url}/model/a:b%20c?x=1", b"{}"),
        ("DELETE", f"{server.url}/d", b""),
    ]
    assert [request.head.splitlines()[0] for request in server.requests] == [
        "POST /model/a:b%20c?x=1 HTTP/1.1",
        "DELETE /d HTTP/1.1",
    ]
    assert [request.header("Authorization") for request in server.requests] == ["Signed 1", "Signed 2"]


async def test_a_signature_takes_the_place_of_headers_of_the_request_but_not_of_the_operator(
    raw: StartRaw, connect: Connect
) -> None:
    server = await raw(lambda exchange: exchange.stream(b"data: 1\n\n"))
    for route in (Route(), Route(headers={"AUTHORIZATION": "Basic abc"})):
        await batches(connect(_Numbered(), route), server.url, headers={"authorization": "mine"})
    assert [request.header("Authorization") for request in server.requests] == ["Token 1", "Basic abc"]


async def test_a_refused_credential_is_renewed_and_the_request_made_once_more(raw: StartRaw, connect: Connect) -> None:
    server = await raw(lambda exchange: _accepting(exchange, "Token 2"))
    credential = _Numbered()
    assert await batches(connect(credential), server.url, b'{"a":1}') == [[b"1"]]
    assert [request.body for request in server.requests] == [b'{"a":1}', b'{"a":1}']
    assert credential.refused == [{"Authorization": "Token 1"}]


@pytest.mark.parametrize("last", [9, 1], ids=["refused again", "nothing to renew"])
async def test_there_is_no_third_attempt_and_none_without_a_renewal(raw: StartRaw, connect: Connect, last: int) -> None:
    server = await raw(_accepting)
    with pytest.raises(AdapterError) as caught:
        await batches(connect(_Numbered(last)), server.url)
    assert caught.value.kind is ErrorClass.UNAUTHORISED
    assert len(server.requests) == (2 if last == 9 else 1)


async def test_a_signature_without_renewal_is_not_repeated(raw: StartRaw, connect: Connect) -> None:
    async def sign(method: str, url: str, body: bytes) -> dict[str, str]:
        return {"Authorization": "Signed"}

    server = await raw(_accepting)
    with pytest.raises(AdapterError) as caught:
        await batches(connect(sign), server.url)
    assert caught.value.kind is ErrorClass.UNAUTHORISED
    assert len(server.requests) == 1


async def test_a_credential_ends_with_its_client(connect: Connect) -> None:
    credential = _Numbered()
    client: HttpClient = connect(credential)
    await client.aclose()
    assert credential.closed
