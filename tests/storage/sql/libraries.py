"""The versions of SQLite that plan a query: Python's, which is often that of the system, and a new one. They plan differently,
and a machine may have either.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

OPENING: dict[str, Callable[[Path], Any]] = {
    sqlite3.sqlite_version: sqlite3.connect,
    apsw.sqlite_lib_version(): lambda path: apsw.Connection(str(path)),
}
"""By the version."""
