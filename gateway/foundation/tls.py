"""TLS of the gateway's own connections. Law: whom to trust is decided here for all of them: the authorities of the system, of
`SSL_CERT_FILE` and `SSL_CERT_DIR` where these are set, and those of a setting besides.
"""

import ssl
from pathlib import Path


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


def distrust(error: BaseException) -> str | None:
    """Why the certificate of a server is not trusted, where that has caused the error."""
    cause: BaseException | None = error
    while cause is not None:
        # aiohttp's own error is of this class, too, and has the library's as its cause.
        if isinstance(cause, ssl.SSLCertVerificationError) and (reason := getattr(cause, "verify_message", None)):
            return f"its certificate is not trusted: {reason}"
        cause = cause.__cause__ or cause.__context__
    return None
