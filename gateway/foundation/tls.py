"""TLS of the gateway's own connections. Law: whom to trust is decided here for all of them: the authorities of the system, of
`SSL_CERT_FILE` and `SSL_CERT_DIR` where these are set, and those of a setting besides; what is wrong is told with what helps.
"""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from gateway.foundation.causes import causes

FILE_VARIABLE = "SSL_CERT_FILE"
FOLDER_VARIABLE = "SSL_CERT_DIR"

# Results of OpenSSL's check of a certificate (X509_V_ERR_...), which the module ssl has no names for.
_SELF_SIGNED = 18
_NO_AUTHORITY = frozenset({2, 19, 20, 21})
_NOT_YET_VALID = 9
_EXPIRED = 10
_OTHER_NAME = frozenset({62, 64})

# What OpenSSL says of an answer that is not TLS; which of them depends on its version.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG"})
# An alert of TLS 1.x, as libraries quote an answer that is not HTTP.
_ALERT = r"\x15\x03"

ADDRESS_OF_PLAIN_HTTP = "does its address begin with http:// and not with https://?"
ADDRESS_OF_TLS = "does its address begin with https:// and not with http://?"
_HANDSHAKE_ENDED = f"it ended the TLS handshake without an answer; {ADDRESS_OF_PLAIN_HTTP}"


def client_context(ca: Path | None = None) -> ssl.SSLContext:
    """The context of a client. `ca` is a file with certificates of further authorities, in PEM.

    Raises: OSError, ssl.SSLError.
    """
    context = ssl.create_default_context()
    if ca is not None:
        context.load_verify_locations(ca)
    return context


def check_authorities(ca: Path) -> None:
    """Raises: ValueError for a file without usable certificates, with the reason."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca)
    except ssl.SSLError as error:
        raise ValueError(f"the file {ca} holds no certificates in PEM") from error
    except OSError as error:
        raise ValueError(f"the file {ca} cannot be read: {(error.strerror or str(error)).lower()}") from error


def check_certificate(certificate: Path, key: Path) -> None:
    """Raises: ValueError for files that a server cannot use, with the reason."""
    for file in (certificate, key):
        try:
            file.read_bytes()
        except OSError as error:
            raise ValueError(f"the file {file} cannot be read: {(error.strerror or str(error)).lower()}") from error
    try:
        # Without a password, so that an encrypted key is refused, and does not ask the terminal for one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        raise ValueError(
            f"the files {certificate} and {key} hold no certificate in PEM with its unencrypted key"
        ) from error


def check_environment(env: Mapping[str, str]) -> None:
    """OpenSSL says nothing of a file or a folder that is not there: all that it would add is not trusted.

    Raises: ValueError that names the variable and the file.
    """
    file, folders = env.get(FILE_VARIABLE), env.get(FOLDER_VARIABLE)
    for name, value in ((FILE_VARIABLE, file), (FOLDER_VARIABLE, folders)):
        if value is not None and not value.strip():
            raise ValueError(f"{name} is set, but empty; let it name authorities to trust, or unset it")
    if file is not None:
        try:
            check_authorities(Path(file))
        except ValueError as error:
            raise ValueError(f"{FILE_VARIABLE}: {error}") from error
    if folders is not None and not any(Path(folder).is_dir() for folder in folders.split(os.pathsep)):
        raise ValueError(f"{FOLDER_VARIABLE}: {folders} is no folder")


def tls_problem(error: BaseException, setting: str | None = None) -> str | None:
    """What is wrong between a client and the TLS of a server, and what helps, where that has caused the error; None for
    any other error. `setting` is what names a file with further authorities, besides SSL_CERT_FILE."""
    place = FILE_VARIABLE if setting is None else f"{setting}, or in {FILE_VARIABLE}"
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError) and (reason := getattr(cause, "verify_message", None)):
            return _certificate_problem(getattr(cause, "verify_code", 0), reason.rstrip("."), place)
        # aiohttp's own error is of this class, too, and has the library's as its cause.
        if isinstance(cause, ssl.SSLError) and (reason := getattr(cause, "reason", None)):
            return _handshake_problem(reason)
        if type(cause) is ConnectionResetError and not cause.args:
            # asyncio's error for a peer that ends the handshake; one of the system has a number.
            return _HANDSHAKE_ENDED
        if _ALERT in str(cause):
            return f"it answers in TLS; {ADDRESS_OF_TLS}"
    return None


def _certificate_problem(code: int, reason: str, place: str) -> str:
    if code == _SELF_SIGNED:
        return f"its certificate is not trusted: {reason}; name a file with the certificate itself in {place}"
    if code in _NO_AUTHORITY:
        return (
            f"its certificate is not trusted: {reason}; name a file with the certificate of its authority in {place}, "
            "unless the server leaves out the certificates in between"
        )
    if code == _EXPIRED:
        return "its certificate has expired: the server needs a new one, unless the clock of this machine is wrong"
    if code == _NOT_YET_VALID:
        return "its certificate is not valid yet: is the clock of this machine right?"
    if code in _OTHER_NAME:
        return f"its certificate is for other names: {reason}; use a name that it holds in the address"
    return f"its certificate is refused: {reason}; it, or that of its authority, has to be made anew"


def _handshake_problem(reason: str) -> str:
    if reason in _NO_TLS:
        return f"it does not answer in TLS; {ADDRESS_OF_PLAIN_HTTP}"
    words = reason.replace("_", " ").lower()
    if "CERTIFICATE_REQUIRED" in reason:
        return f"it refuses the TLS handshake: {words}; no certificate of a client can be given"
    if "_ALERT_" in reason:
        return f"it refuses the TLS handshake: {words}"
    if "EOF" in reason:
        return _HANDSHAKE_ENDED
    return f"TLS with it fails: {words}"
