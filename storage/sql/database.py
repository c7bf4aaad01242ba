"""The database itself: the gateway's own rows, and the versions of data and schema."""

from typing import Any

from sqlalchemy import Select, bindparam, column, delete, select
from sqlalchemy import table as from_table

from storage.schema.tables import secret
from storage.sql.fragments import Write, given, upsert, word

PROBE = Write(
    "write the probe",
    upsert(secret)
    .inline()
    .values(name=word("probe"), value=bindparam("value"))
    .on_conflict_do_update(index_elements=["name"], set_={"value": bindparam("value")}),
)

DELETE_PROBE = Write("delete the probe", delete(secret).where(secret.c.name == word("probe")), None)

NEW_SECRET = Write(
    "make the secret if there is none",
    upsert(secret).values(**given("name", "value")).on_conflict_do_nothing(),
    rows=None,
)

SECRET = select(secret.c.value).where(secret.c.name == bindparam("name"))

SCHEMA_VERSION: Select[Any] = select(column("version_num")).select_from(from_table("alembic_version"))

DATA_VERSION = "PRAGMA data_version"
"""Changes with every commit of another connection; only numbers of one and the same connection can be compared."""
