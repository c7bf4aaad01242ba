"""The commit points of API keys, as statements. Law: as in `units`."""

from gateway.api_keys import IssueKey, RevokeKey
from storage import compiled as do
from storage.statement import Step, Value


def keyed(point: IssueKey | RevokeKey) -> list[Step]:
    match point:
        case IssueKey(key=key):
            values: dict[str, Value] = {
                "digest": key.digest,
                "name": key.name,
                "prefix": key.prefix,
                "principal": key.principal,
                "tenant": key.tenant,
                "admin": int(key.admin),
                "created_at": key.created_at,
                "expires_at": key.expires_at,
                "revoked_at": key.revoked_at,
            }
            return [(do.NEW_KEY, values)]
        case RevokeKey():
            return [(do.REVOKE_KEY, {"key_name": point.name, "now": point.now})]
