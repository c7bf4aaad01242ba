"""The description against the server that it describes, by schemathesis: what it generates from the one it sends to the other,
and checks every answer."""

import asyncio
import sys
from pathlib import Path

from tests.running import child_gateways

AGENTS = "echo: {type: python, ref: 'tests.interop.echo_agent:reply'}"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
)
"""Left out are `negative_data_rejection`, because a reader of ProtoJSON refuses neither null nor unknown members;
and `positive_data_acceptance`, because there are rules that no schema says. Callers have no keys, since whoever guesses them is
slowed down: `test_document.py` asks every address without one."""

WITHIN_SECONDS = 300


async def run(*command: str, directory: Path) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *command,
        cwd=directory,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(WITHIN_SECONDS):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, out.decode()


async def test_the_server_answers_as_its_description_says(tmp_path: Path) -> None:
    async with child_gateways(AGENTS, tmp_path) as start:
        gateway = await start()
        code, told = await run(
            "schemathesis.cli",
            "--no-color",
            "run",
            f"{gateway.url}/openapi.json",
            *("--checks", ",".join(CHECKS)),
            *("--phases", "examples,coverage,fuzzing"),
            *("--max-examples", "5"),
            "--generation-deterministic",
            *("--warnings", "off"),
            directory=tmp_path,
        )
    assert code == 0, told
