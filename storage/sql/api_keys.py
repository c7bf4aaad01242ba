"""The statements and queries of API keys. Law: a key is looked up by its digest alone."""

from sqlalchemy import bindparam, insert, select, update

from storage.schema.tables import api_key
from storage.sql.fragments import Write, given

# The columns of the table are in the order of ApiKey.
NEW_KEY = Write(
    "store a key under a new name", insert(api_key).values(**given(*(column.name for column in api_key.columns)))
)

REVOKE_KEY = Write(
    "revoke a key in force",
    update(api_key)
    .where(api_key.c.name == bindparam("name"), api_key.c.revoked_at.is_(None))
    .values(revoked_at=bindparam("now")),
)

END_SESSIONS = Write(
    "end the sessions of a key",
    update(api_key).where(api_key.c.digest == bindparam("digest")).values(sessions_ended_at=bindparam("now")),
)

API_KEY = select(api_key).where(api_key.c.digest == bindparam("digest"))

API_KEYS = select(api_key).order_by(api_key.c.created_at, api_key.c.name)
