"""What a start loads before it knows the agents."""

import subprocess
import sys


def test_the_composition_root_does_not_load_the_http_client_of_backends() -> None:
    code = "import sys, gateway.app.process; print('aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
