"""Reverse proxies with TLS in front of a gateway: each runs its file of deploy/ with other names, ports and certificates."""

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.interop.peer_processes import absent
from tests.support.certificates import certificate
from tests.support.polling import until
from tests.support.ports import free_port

_DEPLOY = Path(__file__).parents[2] / "deploy"
_HOST = "agents.example.com"

Write = Callable[[Path, Path, str, int, int], list[str]]
"""Writes the configuration: the folder, the file of key and certificate, the gateway's address, the ports of HTTPS and HTTP.
Returns the command."""


def _nginx(folder: Path, tls: Path, gateway: str, port: int, plain: int) -> list[str]:
    server = (_DEPLOY / "nginx" / "a2a-gateway.conf").read_text()
    changes = {
        "127.0.0.1:8080": gateway,
        "    listen [::]:80;\n": "",
        "    listen [::]:443 ssl http2;\n": "",
        "listen 80;": f"listen 127.0.0.1:{plain};",
        "listen 443 ssl http2;": f"listen 127.0.0.1:{port} ssl http2;",
        f"/etc/nginx/tls/{_HOST}.pem": str(tls),
        f"/etc/nginx/tls/{_HOST}.key": str(tls),
        _HOST: "localhost",
    }
    (folder / "server.conf").write_text(_replaced(server, changes))
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log stderr;\n"
        f"events {{}}\nhttp {{ access_log off; {paths} include {folder}/server.conf; }}\n"
    )
    return ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]


def _caddy(folder: Path, tls: Path, gateway: str, port: int, plain: int) -> list[str]:
    site = (_DEPLOY / "caddy" / "Caddyfile").read_text()
    changes = {"127.0.0.1:8080": gateway, f"\n{_HOST} {{\n": f"\nhttps://localhost:{port} {{\n\ttls {tls} {tls}\n"}
    options = f"{{\n\tadmin off\n\thttp_port {plain}\n\tskip_install_trust\n}}\n"
    (folder / "Caddyfile").write_text(options + _replaced(site, changes))
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


def _replaced(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert old in text, f"{old!r} is not in the file"
        text = text.replace(old, new)
    return text


PROXIES: dict[str, Write] = {"nginx": _nginx, "caddy": _caddy}


@asynccontextmanager
async def proxy(name: str, folder: Path, gateway_url: str) -> AsyncIterator[tuple[str, Path]]:
    """Runs the proxy in front of this gateway. Gives its address and the file of its certificate authority."""
    if shutil.which(name) is None:
        absent(f"{name} is not installed: run .ci/peers.sh as root on Debian")
    tls, port = certificate(folder, "localhost"), free_port()
    command = PROXIES[name](folder, tls, gateway_url.removeprefix("http://"), port, free_port())
    with (folder / "proxy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        await until(lambda: process.returncode is not None or _listens(port))
        assert process.returncode is None, (folder / "proxy.log").read_text()
        yield f"https://localhost:{port}", tls
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
