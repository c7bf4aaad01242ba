"""The agent that a command line names, and the command line that names it again.

Law: a wrong value stops the command before anything is sent; imports nothing but typer.
"""

import http.client
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from gateway.cli.console.output import ExitCode, Stop, program
from gateway.config.problems import display
from gateway.foundation.addresses import is_loopback
from gateway.foundation.route import check_proxy

DEFAULT_URL = "http://127.0.0.1:8080"
KEY_VARIABLE = "A2A_GATEWAY_KEY"
_PROXIED = ("http", "https", "all")
BindingName: TypeAlias = Literal["jsonrpc", "rest"]


@dataclass(frozen=True, slots=True)
class AgentAddress:
    """An agent as it was typed; the headers and the API key go with every request."""

    url: str
    agent: str | None
    binding: BindingName | None
    headers: dict[str, str]
    key: str | None = None
    ca: Path | None = None
    proxy: str | None = None

    @property
    def request_headers(self) -> dict[str, str]:
        """An Authorization header that was typed wins over the key."""
        if self.key is None or any(name.lower() == "authorization" for name in self.headers):
            return self.headers
        return {**self.headers, "Authorization": f"Bearer {self.key}"}

    @property
    def options(self) -> list[str]:
        """The options that name the agent again, without the values of headers and key, which may be secret."""
        words: list[str] = []
        if self.url != DEFAULT_URL:
            words += ["-u", self.url]
        if self.agent is not None:
            words += ["-a", self.agent]
        if self.binding is not None:
            words += ["--binding", self.binding]
        for name in self.headers:
            words += ["--header", f"{name}: ..."]
        if self.key is not None and self.key != os.environ.get(KEY_VARIABLE):
            words += ["--key", "..."]
        if self.ca is not None:
            words += ["--ca", str(self.ca)]
        if self.proxy is not None:
            words += ["--proxy", "..." if "@" in self.proxy else self.proxy]
        return words

    @property
    def text(self) -> str:
        """The address in a form for the middle of a sentence."""
        return self.url if self.agent is None else f"{self.url}, agent {self.agent!r}"

    def command(self, *words: str, argument: str | None = None) -> str:
        """A command line to copy; `argument` stands last and may look like an option."""
        last = [] if argument is None else [*(["--"] if argument.startswith("-") else []), argument]
        return f"{program()} {shlex.join([*words, *self.options, *last])}"


def read_address(
    agent: str | None,
    url: str,
    binding: BindingName | None,
    headers: Sequence[str] | None,
    key: str | None = None,
    ca: Path | None = None,
    proxy: str | None = None,
) -> AgentAddress:
    """`agent` may be a URL, too. Raises: Stop (2)."""
    if agent is not None and "://" in agent:
        url, agent = agent, None
    address = AgentAddress(read_url(url), agent, binding, read_headers(headers or ()), read_key(key), ca, proxy)
    _check_route(address)
    return address


def _check_route(address: AgentAddress) -> None:
    """Raises: Stop (2)."""
    check_trust()
    if address.ca is not None:
        from gateway.foundation.tls import check_authorities

        try:
            check_authorities(address.ca)
        except ValueError as error:
            raise Stop(ExitCode.USAGE, f"--ca: {error}") from error
    if address.proxy is not None:
        try:
            check_proxy(address.proxy)
        except ValueError as error:
            raise Stop(ExitCode.USAGE, f"--proxy {error}") from error
    elif not is_loopback(urlsplit(address.url).hostname or ""):
        _check_environment_proxies()


def check_trust(code: ExitCode = ExitCode.USAGE) -> None:
    """Raises: Stop, with this code, where the environment names authorities that are not there."""
    # This module and that for proxies are not needed by commands that call nobody.
    from gateway.foundation.tls import check_environment

    try:
        check_environment(os.environ)
    except ValueError as error:
        raise Stop(code, str(error)) from error


def _check_environment_proxies() -> None:
    """Raises: Stop (2) for a proxy that the client cannot use, although NO_PROXY may name the host."""
    from urllib.request import getproxies

    proxies = getproxies()
    if "*" in (host.strip() for host in proxies.get("no", "").split(",")):
        return
    for kind in _PROXIED:
        proxy = proxies.get(kind)
        try:
            if proxy:
                check_proxy(proxy if "://" in proxy else f"http://{proxy}", schemes=("http", "https"))
        except ValueError as error:
            name = _proxy_variable(kind)
            remedy = "unset it for this command, or name another with --proxy"
            raise Stop(ExitCode.USAGE, f"{name} {error}; {remedy}") from error


def environment_proxy(url: str) -> tuple[str, str] | None:
    """The variable that names a proxy for this URL, and that proxy; None where requests go without one."""
    from urllib.request import getproxies, proxy_bypass

    parts, proxies = urlsplit(url), getproxies()
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(host):
        return None
    found = next(((kind, proxies[kind]) for kind in (parts.scheme, "all") if proxies.get(kind)), None)
    if found is None:
        return None
    kind, proxy = found
    return _proxy_variable(kind), proxy if "://" in proxy else f"http://{proxy}"


def _proxy_variable(kind: str) -> str:
    return next((name for name in os.environ if name.lower() == f"{kind}_proxy"), f"the proxy for {kind}")


def read_url(url: str) -> str:
    """The same URL. Raises: Stop (2) unless it is one of a host over HTTP, without credentials."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        credentials = "@" in parts.netloc
    except ValueError:
        usable = credentials = False
    if not usable or any(character.isspace() for character in url):
        raise Stop(ExitCode.USAGE, f"{display(url)} is no address; write one such as http://127.0.0.1:8080")
    if credentials:
        raise Stop(
            ExitCode.USAGE,
            f"{display(url)} must have no user or password in it: addresses are shown; use --key or --header",
        )
    return url


def read_headers(given: Sequence[str]) -> dict[str, str]:
    """Headers from `NAME: VALUE`. Raises: Stop (2)."""
    headers = {}
    for header in given:
        name, colon, value = header.partition(":")
        name, value = name.strip(), value.strip()
        if not colon or not name.replace("-", "").replace("_", "").isalnum() or not f"{name}{value}".isascii():
            raise Stop(ExitCode.USAGE, f"--header must look like 'Name: value', not {name!r}")
        if not value.isprintable():
            raise Stop(ExitCode.USAGE, f"--header {name!r} holds a control character")
        headers[name] = value
    return headers


def read_key(key: str | None) -> str | None:
    """The API key; None for a missing or an empty one. Raises: Stop (2)."""
    text = (key or "").strip()
    if not text.isascii() or not text.isprintable() or " " in text:
        raise Stop(ExitCode.USAGE, "the API key holds what no key can hold: is it whole, and nothing else?")
    return text or None


def http_get(url: str, timeout: float, largest: int) -> tuple[int, bytes]:
    """Status and body, without a client. Raises: OSError, http.client.HTTPException, ValueError."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout)
    try:
        connection.request("GET", parts.path)
        response = connection.getresponse()
        return response.status, response.read(largest)
    finally:
        connection.close()
