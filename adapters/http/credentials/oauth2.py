"""Tokens by the grant `client_credentials`. Source: RFC 6749, sections 2.3.1, 4.4 and 5."""

import base64
from urllib.parse import urlencode

import msgspec

from adapters.http.client import HttpClient, Reply
from adapters.http.credentials.settings import OAuth2Auth
from adapters.http.credentials.tokens import Fetch, Token
from adapters.http.failures import Failures
from adapters.http.settings import Timeouts
from gateway.foundation.route import Route
from gateway.ports.adapter import AdapterError, ErrorClass

_FORM = "application/x-www-form-urlencoded"
_ANSWER_LIMIT = 256 * 1024
_ANY_STATUS = range(100, 600)
_BEARER = "bearer"
_VALID = range(200, 300)


class _Answer(msgspec.Struct):
    access_token: str = ""
    token_type: str | None = None
    expires_in: float | str | None = None
    error: str = ""
    error_description: str = ""


_decoder = msgspec.json.Decoder(_Answer)


def oauth2_token(auth: OAuth2Auth, failures: Failures, timeouts: Timeouts, route: Route) -> Fetch:
    secret = auth.client_secret.get_secret_value()
    fields = {"grant_type": "client_credentials"} | ({"scope": auth.scope} if auth.scope else {})
    headers = {"Content-Type": _FORM, "Accept": "application/json"}
    if auth.client_authentication == "basic":
        headers["Authorization"] = f"Basic {base64.b64encode(auth.pair.encode()).decode()}"
    else:
        fields |= {"client_id": auth.client_id, "client_secret": secret}
    body = urlencode(fields | auth.parameters).encode()

    async def fetch() -> Token:
        http = HttpClient(timeouts, failures, headers, route)
        try:
            reply = await http.request(
                "POST", auth.token_url, body, headers=headers, expected=_ANY_STATUS, limit=_ANSWER_LIMIT
            )
        finally:
            await http.aclose()
        return _token(reply, auth.token_url, failures)

    return fetch


def _token(reply: Reply, url: str, failures: Failures) -> Token:
    """Raises: AdapterError."""
    try:
        answer = _decoder.decode(reply.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        answer = _Answer()
    if reply.status not in _VALID or answer.error:
        raise _refused(reply, answer, url, failures)
    if not answer.access_token.isascii() or not answer.access_token.isprintable() or not answer.access_token:
        raise failures.error(ErrorClass.CONTRACT_BROKEN, f"{url} answers without an access token")
    failures.hide(answer.access_token)
    if (answer.token_type or _BEARER).lower() != _BEARER:
        raise failures.error(ErrorClass.CONTRACT_BROKEN, f"{url} gives a token of type {answer.token_type!r}")
    return Token(answer.access_token, _seconds(answer.expires_in))


def _refused(reply: Reply, answer: _Answer, url: str, failures: Failures) -> AdapterError:
    error = failures.from_response(reply.status, reply.headers, reply.body, instead_of="a token")
    text = ": ".join(filter(None, (f"{url} answers {error.detail}", answer.error_description)))
    kind = ErrorClass.BACKEND_FAILED if answer.error == "temporarily_unavailable" else error.kind
    return failures.error(kind, text, retry_after=error.retry_after)


def _seconds(expires_in: float | str | None) -> float | None:
    """Some servers write the number as text."""
    try:
        return None if expires_in is None else max(0.0, float(expires_in))
    except ValueError:
        return None
