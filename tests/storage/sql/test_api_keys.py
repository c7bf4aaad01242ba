"""API keys in the database: nobody who reads it learns a key."""

from gateway.ledger.api_keys import ApiKey, IssueKey, digest_of, new_key, shown
from tests.storage.conversation import Recorded

SECRET = new_key()
KEY = ApiKey(digest_of(SECRET), "bot", shown(SECRET), "ada", "acme", admin=True, created_at=1000, expires_at=9000)


async def test_a_key_itself_is_not_stored(database: Recorded) -> None:
    await database.ledger.commit(IssueKey(KEY))
    files = [file.read_bytes() for file in database.path.parent.iterdir()]
    assert any(KEY.digest in content for content in files)
    assert not any(SECRET.encode() in content for content in files)
