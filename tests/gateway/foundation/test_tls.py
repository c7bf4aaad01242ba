"""What is wrong between a client and the TLS of a server, by handshakes on both event loops; authorities of the environment."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gateway.foundation.tls import check_environment, client_context, tls_problem
from tests.support.certificates import certificate, make_authority, server_context

LOOPS = pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
Run = Callable[[Coroutine[Any, Any, BaseException]], BaseException]


async def failure(context: ssl.SSLContext | None, answer: bytes = b"", host: str = "localhost") -> BaseException:
    """The error of a client that trusts the system's authorities, and talks to a server with this context, or without TLS."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        try:
            _, writer = await asyncio.open_connection(host, port, ssl=client_context())
        except OSError as error:
            return error
        writer.close()
    raise AssertionError


OTHERS = "its certificate is for other names: "


@LOOPS
@pytest.mark.parametrize(
    ("signed", "reason", "what"),
    [
        (False, "self-signed certificate", "the certificate itself"),
        (True, "unable to get local issuer certificate", "the certificate of its authority"),
    ],
)
def test_an_unknown_authority_is_told_with_where_to_name_it(
    tmp_path: Path, loop: Run, signed: bool, reason: str, what: str
) -> None:
    file = certificate(tmp_path, "localhost", authority=make_authority(tmp_path) if signed else None)
    error = loop(failure(server_context(file)))
    for setting, places in (("`ca`", "`ca`, or in SSL_CERT_FILE"), (None, "SSL_CERT_FILE")):
        problem = tls_problem(error, setting) or ""
        remedy, _, doubt = problem.partition(", unless the server leaves out the certificates in between")
        assert remedy == f"its certificate is not trusted: {reason}; name a file with {what} in {places}"
        assert (remedy != problem, doubt) == (signed, "")


@LOOPS
@pytest.mark.parametrize(
    ("days", "name", "expected"),
    [
        (
            (-2, -1),
            "localhost",
            "its certificate has expired: the server needs a new one, unless the clock of this machine is wrong",
        ),
        ((1, 2), "localhost", "its certificate is not valid yet: is the clock of this machine right?"),
        (
            (-1, 1),
            "elsewhere.example",
            f"{OTHERS}Hostname mismatch, certificate is not valid for 'localhost'; use a name that it holds in the address",
        ),
    ],
)
def test_what_no_authority_mends_is_told_without_one(
    tmp_path: Path, loop: Run, monkeypatch: pytest.MonkeyPatch, days: tuple[float, float], name: str, expected: str
) -> None:
    authority = make_authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    file = certificate(tmp_path, name, days=days, authority=authority)
    assert tls_problem(loop(failure(server_context(file))), "SETTING") == expected


def test_a_certificate_against_the_rules_is_told_as_such() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = 79, "invalid CA certificate"
    remedy = "it, or that of its authority, has to be made anew"
    assert tls_problem(error) == f"its certificate is refused: invalid CA certificate; {remedy}"


def test_an_address_in_place_of_a_name_is_a_name_that_the_certificate_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = make_authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    file = certificate(tmp_path, "localhost", authority=authority)
    problem = tls_problem(asyncio.run(failure(server_context(file), host="127.0.0.1")))
    assert problem is not None
    assert problem.startswith(f"{OTHERS}IP address mismatch")


@LOOPS
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it does not answer in TLS"),
        (b"220 mail.example ESMTP\r\n", "it does not answer in TLS"),
        (b"", "it ended the TLS handshake without an answer"),
    ],
)
def test_a_server_without_tls_is_told_with_the_address_that_it_may_have(
    loop: Run, answer: bytes, expected: str
) -> None:
    hint = "does its address begin with http:// and not with https://?"
    assert tls_problem(loop(failure(None, answer))) == f"{expected}; {hint}"


def test_an_answer_in_tls_is_found_in_the_error_of_a_library() -> None:
    error = RuntimeError("a library's")
    error.__cause__ = ValueError(f"no HTTP: {bytes.fromhex('15030300020216')!r}")
    assert tls_problem(error) == "it answers in TLS; does its address begin with https:// and not with http://?"


@LOOPS
@pytest.mark.parametrize(("alert", "words"), [(b"\x46", "protocol version"), (b"\x28", "handshake failure")])
def test_a_server_that_refuses_the_handshake_is_no_matter_of_certificates(loop: Run, alert: bytes, words: str) -> None:
    problem = tls_problem(loop(failure(None, b"\x15\x03\x03\x00\x02\x02" + alert)), "`ca`") or ""
    assert problem.startswith("it refuses the TLS handshake: ")
    assert problem.endswith(words)


@pytest.mark.parametrize(
    "error", [OSError(111, "refused"), ConnectionResetError(104, "reset"), ValueError("x"), TimeoutError()]
)
def test_any_other_error_is_none_of_tls(error: BaseException) -> None:
    assert tls_problem(error) is None


# --- the environment


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        (
            "SSL_CERT_FILE",
            "none.pem",
            "SSL_CERT_FILE: the file FOLDER/none.pem cannot be read: no such file or directory",
        ),
        ("SSL_CERT_FILE", "empty.pem", "SSL_CERT_FILE: the file FOLDER/empty.pem holds no certificates in PEM"),
        ("SSL_CERT_FILE", "text.pem", "SSL_CERT_FILE: the file FOLDER/text.pem holds no certificates in PEM"),
        ("SSL_CERT_FILE", "", "SSL_CERT_FILE: the file FOLDER cannot be read: is a directory"),
        ("SSL_CERT_DIR", "none", "SSL_CERT_DIR: FOLDER/none is no folder"),
        ("SSL_CERT_DIR", "empty.pem", "SSL_CERT_DIR: FOLDER/empty.pem is no folder"),
    ],
)
def test_a_variable_that_names_no_authorities_is_told_with_its_file(
    tmp_path: Path, variable: str, value: str, words: str
) -> None:
    (tmp_path / "empty.pem").touch()
    (tmp_path / "text.pem").write_text("none here")
    with pytest.raises(ValueError, match="SSL_CERT") as caught:
        check_environment({variable: str(tmp_path / value)})
    assert str(caught.value) == words.replace("FOLDER", str(tmp_path))


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_a_variable_without_a_value_is_told(variable: str) -> None:
    with pytest.raises(ValueError, match=f"{variable} is set, but empty"):
        check_environment({variable: ""})


def test_variables_that_name_authorities_are_right(tmp_path: Path) -> None:
    file = certificate(tmp_path, "localhost")
    check_environment({})
    check_environment({"SSL_CERT_FILE": str(file)})
    check_environment({"SSL_CERT_DIR": f"{tmp_path / 'none'}:{tmp_path}"})
