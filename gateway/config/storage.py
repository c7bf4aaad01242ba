"""The settings of storage that every kind has. Law: as in `gateway.config.gateway`."""

from pydantic import BaseModel, Field, SerializeAsAny

from gateway.config.problems import shown_url
from gateway.config.settings import Duration, LongKey, Settings, Text, duration
from gateway.ledger.leases import LONGEST_LEASE

DEFAULT_URL = "sqlite:///./data/gateway.db"
TEMPORARY = "temporary"
"""The one URL without more than its scheme."""


class StorageCommon(Settings):
    """Where contexts, tasks and events are kept. The scheme of `url` is the kind of storage."""

    url: Text = Field(DEFAULT_URL, description="Address of the database; its scheme is the kind of storage.")
    auto_migrate: bool = Field(True, description="Bring the database to the current schema at start.")
    lease_timeout: Duration = Field(
        duration("5s"),
        ge=duration("500ms"),
        le=LONGEST_LEASE / 1000,
        description="Silence after which a process that shares the database counts as dead and others take its turns.",
    )
    encryption_key: LongKey | None = Field(
        None,
        description="Encrypts secrets of backends, such as tokens of a conversation, in the database; a key in the database "
        "itself when not given.",
    )


class StorageConfig(StorageCommon):
    """The storage: the common keys, and `settings`, the model of its kind, which has completed the URL."""

    settings: SerializeAsAny[BaseModel]

    @property
    def address(self) -> str:
        """The URL without credentials, for people."""
        return shown_url(self.url)
