"""What an error of aiohttp means for a request that has had no answer."""

import aiohttp

from adapters.http.connection import StaleConnection
from adapters.http.failures import Failures
from gateway.foundation.route import Proxy
from gateway.foundation.tls import ADDRESS_OF_TLS, tls_problem
from gateway.ports.adapter import AdapterError, ErrorClass


class Faults:
    """Makes the errors of the requests of one client."""

    def __init__(self, failures: Failures, proxy: Proxy | None) -> None:
        self._failures = failures
        self._proxy = proxy

    def of(self, error: Exception, url: str, *, answered: bool) -> AdapterError:
        """`answered` says whether any earlier request has had an answer."""
        match error:
            case aiohttp.ConnectionTimeoutError() | aiohttp.ClientConnectorError():
                return self._error(ErrorClass.UNREACHABLE, error)
            case TimeoutError():
                return self._error(ErrorClass.TIMED_OUT, error)
            case StaleConnection():
                return self._error(ErrorClass.INTERRUPTED, error, stale_connection=True)
            case aiohttp.ServerDisconnectedError():
                # Most servers of TLS say nothing to a request in plain text.
                hint = f"; {ADDRESS_OF_TLS}" if url.startswith("http:") and not answered else ""
                return self._failures.error(ErrorClass.INTERRUPTED, f"it disconnected without an answer{hint}")
            case aiohttp.ClientConnectionError() | OSError():
                return self._error(ErrorClass.INTERRUPTED, error)
            case aiohttp.ClientHttpProxyError(status=status):
                return self.refused_by_proxy(status)
        return self._error(ErrorClass.CONTRACT_BROKEN, error)

    def refused_by_proxy(self, status: int) -> AdapterError:
        where = "" if self._proxy is None else f" {self._proxy.url}"
        return self._failures.error(ErrorClass.UNREACHABLE, f"the proxy{where} answers HTTP {status}")

    def _error(self, kind: ErrorClass, error: Exception, *, stale_connection: bool = False) -> AdapterError:
        text = tls_problem(error, "`ca`") or f"{type(error).__name__}: {error}"
        return self._failures.error(kind, text, stale_connection=stale_connection)
