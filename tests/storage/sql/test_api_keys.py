"""API keys in the ledger: found by their digest, revoked for good, one in force for each name."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.ledger.api_keys import ApiKey, IssueKey, RevokeKey, digest_of, new_key, shown
from gateway.ledger.errors import Conflict
from tests.storage.conversation import Recorded, recorded

SECRET = new_key()
KEY = ApiKey(digest_of(SECRET), "bot", shown(SECRET), "ada", "acme", admin=True, created_at=1000, expires_at=9000)


async def test_a_key_is_found_by_its_digest_and_nothing_else(database: Recorded) -> None:
    await database.ledger.commit(IssueKey(KEY))
    assert await database.ledger.api_key(KEY.digest) == KEY
    assert await database.ledger.api_key(digest_of(new_key())) is None
    assert await database.ledger.api_key(b"") is None
    assert SECRET.encode() not in database.path.read_bytes()


async def test_a_name_has_one_key_in_force_and_may_be_given_again_when_it_is_revoked(database: Recorded) -> None:
    other = replace(KEY, digest=digest_of(new_key()), created_at=1001)
    await database.ledger.commit(IssueKey(KEY))
    with pytest.raises(Conflict, match="under a new name"):
        await database.ledger.commit(IssueKey(other))
    await database.ledger.commit(RevokeKey("bot", 2000))
    await database.ledger.commit(IssueKey(other))
    assert await database.ledger.api_keys() == (replace(KEY, revoked_at=2000), other)


async def test_what_is_revoked_stays_so(database: Recorded) -> None:
    await database.ledger.commit(IssueKey(KEY))
    await database.ledger.commit(RevokeKey("bot", 2000))
    with pytest.raises(Conflict, match="a key in force"):
        await database.ledger.commit(RevokeKey("bot", 3000))
    with pytest.raises(Conflict):
        await database.ledger.commit(RevokeKey("nobody", 3000))
    assert await database.ledger.api_key(KEY.digest) == replace(KEY, revoked_at=2000)


async def test_another_process_sees_it_at_once(tmp_path: Path) -> None:
    async with recorded(tmp_path / "ledger.db") as one, recorded(tmp_path / "ledger.db") as other:
        await one.ledger.commit(IssueKey(KEY))
        assert await other.ledger.api_key(KEY.digest) == KEY
        await other.ledger.commit(RevokeKey("bot", 2000))
        found = await one.ledger.api_key(KEY.digest)
        assert found is not None
        assert found.fault(2001) == "revoked"
