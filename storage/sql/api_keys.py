"""The statements and queries of API keys. Law: as in `statements` and `queries`; a key is looked up by its digest."""

from sqlalchemy import bindparam, insert, select, update

from storage.sql.fragments import api_key, compiled, given
from storage.statement import Statement

_COLUMNS = (
    api_key.c.digest,
    api_key.c.name,
    api_key.c.prefix,
    api_key.c.principal,
    api_key.c.tenant,
    api_key.c.admin,
    api_key.c.created_at,
    api_key.c.expires_at,
    api_key.c.revoked_at,
)
"""In the order of ApiKey."""

NEW_KEY = Statement(
    "store a key under a name that no other has",
    compiled(insert(api_key).values(**given(*(column.name for column in _COLUMNS)))),
)

REVOKE_KEY = Statement(
    "revoke a key that is in force",
    compiled(
        update(api_key)
        .where(api_key.c.name == bindparam("name"), api_key.c.revoked_at.is_(None))
        .values(revoked_at=bindparam("now"))
    ),
)

API_KEY = compiled(select(*_COLUMNS).where(api_key.c.digest == bindparam("digest")))

API_KEYS = compiled(select(*_COLUMNS).order_by(api_key.c.created_at, api_key.c.name))
