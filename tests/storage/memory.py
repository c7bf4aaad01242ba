"""A connection that runs out of memory at a moment that the test chooses."""

import sqlite3
from typing import Any, ClassVar


class Forgetful(sqlite3.Connection):
    short_of_memory_for: ClassVar[list[str]] = []

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        self._remember(sql)
        return super().execute(sql, *parameters)

    def rollback(self) -> None:
        self._remember("ROLLBACK")
        super().rollback()

    def _remember(self, sql: str) -> None:
        if sql in self.short_of_memory_for:
            self.short_of_memory_for.remove(sql)
            raise MemoryError
