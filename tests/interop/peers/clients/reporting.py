"""What the scripts of the clients share. A test gives each a JSON object: `url` of the agent, `transport`, the `checks` to make by
name, `parts` to send, as A2A 1.0 writes them, and `lines`, the file for its report. There each check has a line of JSON,
`{"check": NAME, ...}` with what the client has seen, or with `raised` when it has met an error that it did not expect."""
# mypy: ignore-errors
# Runs in the environments that .ci/peers.sh makes.

import asyncio
import json
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

_WITHIN_SECONDS = 30

asked = SimpleNamespace(**json.loads(sys.argv[-1]))


async def report(checks):
    """Awaits the methods of `checks` that are asked for, one after another; each gives a dict."""
    with Path(asked.lines).open("w", buffering=1) as lines:
        for name in asked.checks:
            try:
                async with asyncio.timeout(_WITHIN_SECONDS):
                    seen = await getattr(checks, name)()
            except Exception:  # noqa: BLE001
                seen = {"raised": traceback.format_exc()}
            lines.write(json.dumps({"check": name, **seen}) + "\n")
