"""Runs a script whose clients of httpx send the headers of A2A_HEADERS, a line each: with_headers.py SCRIPT ARGUMENT...

A header that a request has by itself stays. It runs in the environment of the kits.
"""

import os
import runpy
import sys
from typing import Any

import httpx

_HEADERS = dict(line.split(": ", 1) for line in os.environ["A2A_HEADERS"].splitlines())


class _Client(httpx.Client):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.headers.update(_HEADERS)


httpx.Client = _Client  # type: ignore[misc]
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
