"""What a start loads before it knows the agents."""

import subprocess
import sys

import pytest

_SOME = [
    *("aiohttp", "grpc", "jinja2", "opentelemetry", "sse_starlette"),
    *("gateway.http.openapi", "gateway.recording", "gateway.telemetry.prometheus", "gateway.ui.site"),
]


@pytest.mark.parametrize("package", _SOME)
def test_the_composition_root_does_not_load_what_only_some_need(package: str) -> None:
    code = f"import sys, gateway.app.process; print('{package}' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
