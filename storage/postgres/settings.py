"""The settings of a ledger on PostgreSQL. Law: what names no database is refused when the configuration is read, and no text
quotes a URL.

Source: PostgreSQL's manual, "libpq", section "Connection Strings".
"""

from itertools import takewhile
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote

from pydantic import AfterValidator, Field, SecretStr

from gateway.config.settings import Duration, LocalPath, Settings, duration, expected

DIRECT = "a2a_gateway.direct"
"""A setting of the server that only a connection string of `PostgresSettings` gives, and that a pooler does not pass on. The
limits may be those of the user as well."""

_SHORTEST_IDLE, _LONGEST_IDLE = 1.0, 2.0
"""Seconds between two statements of a transaction, which a gateway at work sends within less than one. One that stands still
there has to let go of its rows before others find its leases expired (two thirds of `lease_timeout` at least)."""

_WAIT_OF_GROUP = 0.3
"""Seconds for which a group waits for a row. All that is written waits as long, the renewals of leases too, which are due three
times in `lease_timeout`; what needs the row is then tried again beside later groups."""

_OLD_PARAMETERS = frozenset({"ssl"})
"""What libpq takes in a URL beside its own parameters, as JDBC writes it."""

_LAST_PORT = 65535
_EXAMPLE = "postgresql://USER@HOST:5432/DATABASE"


def _database_url(value: str) -> str:
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise expected("needs psycopg: install it with: pip install 'a2a-gateway[postgres]'") from None
    try:
        found = conninfo_to_dict(value)
    except (ProgrammingError, UnicodeError):
        unknown = _unknown_parameter(value)
        why = "" if unknown is None else f" (it has the parameter {unknown!r}, which libpq does not know)"
        raise expected(f"must be a connection string of PostgreSQL, as {_EXAMPLE}{why}") from None
    database = str(found.get("dbname") or "")
    if not database:
        raise expected(f"must name a database, as {_EXAMPLE}")
    if f"/{database}" in value and "@" in database:
        raise expected(
            f"has an @ behind the third slash: write {_EXAMPLE}, and %40 for an @ in the name of the database"
        )
    if not all(_is_port(each) for each in str(found.get("port") or "").split(",")):
        raise expected(f"must have a number for each port, at most {_LAST_PORT}, as {_EXAMPLE}")
    return value


def _unknown_parameter(url: str) -> str | None:
    """None also where what looks like one may be a part of a password."""
    from psycopg.pq import Conninfo

    address, _, query = url.partition("?")
    if not query or "@" in query or "://" not in address:
        return None
    known = {option.keyword.decode() for option in Conninfo.get_defaults()} | _OLD_PARAMETERS
    names = [parameter.partition("=")[0] for parameter in query.split("&")]
    before_a_password = takewhile(lambda name: "password" not in name, names)
    return next((name for name in before_a_password if unquote(name) not in known), None)


def _is_port(text: str) -> bool:
    """Also where none is named."""
    return not text or (text.isascii() and text.isdecimal() and 0 < int(text) <= _LAST_PORT)


class PostgresSettings(Settings):
    """A database of PostgreSQL, 13 or newer, that any number of gateways share."""

    url: Annotated[str, AfterValidator(_database_url)] = Field(
        description=f"{_EXAMPLE}, with several hosts and any parameter of libpq."
    )
    password: SecretStr | None = Field(None, description="Password, where it does not stand in the URL.")
    database_schema: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,62}$")] = Field(
        "public", description="Schema of the tables; it is made where it is missing."
    )
    application_name: str = Field("a2a-gateway", description="What the server shows of the connections.")
    readers: Annotated[int, Field(ge=1, le=64)] = Field(
        3,
        description="Connections for long reads. Two more are for writing and for short reads, one for notifications.",
    )
    connect_timeout: Duration = Field(
        duration("5s"),
        ge=duration("1s"),
        le=duration("60s"),
        description="Time of an attempt to connect, to each host.",
    )
    statement_timeout: Duration = Field(
        duration("30s"), ge=duration("100ms"), le=duration("1h"), description="Longest time of a statement."
    )
    lock_timeout: Duration = Field(
        duration("5s"),
        ge=duration("100ms"),
        le=duration("1h"),
        description="Longest wait of a request for a row; others do not wait with it.",
    )
    tls: Literal["disable", "prefer", "require", "verify-ca", "verify-full"] | None = Field(
        None, description="How the connection is secured (sslmode of libpq)."
    )
    ca: LocalPath | None = Field(None, description="Authorities of the server's certificate (PEM).")
    certificate: LocalPath | None = Field(None, description="Certificate of the gateway (PEM).")
    key: LocalPath | None = Field(None, description="Key of that certificate (PEM).")

    def conninfo(self, *, options: bool, writes: bool = False) -> str:
        """The connection string of libpq. With `options` the server's settings go with it, which a pooler refuses or drops;
        `writes` takes those for groups."""
        from psycopg.conninfo import conninfo_to_dict, make_conninfo

        own = conninfo_to_dict(self.url).get("options") or ""
        of_connection = self.limits_of_groups if writes else self.limits
        limits = " ".join(f"-c {name}={value}" for name, value in {**of_connection, DIRECT: "on"}.items())
        given = {
            "password": None if self.password is None else self.password.get_secret_value(),
            "sslmode": self.tls,
            "sslrootcert": _text(self.ca),
            "sslcert": _text(self.certificate),
            "sslkey": _text(self.key),
        }
        return make_conninfo(
            self.url,
            **{name: value for name, value in given.items() if value is not None},
            application_name=self.application_name,
            client_encoding="UTF8",
            **({"options": f"{own} {limits}".strip()} if options else {}),
        )

    @property
    def part(self) -> str | None:
        """As `LedgerFactory.part`."""
        return None if self.database_schema == "public" else f"schema {self.database_schema}"

    @property
    def limits(self) -> dict[str, str]:
        """The server's settings for a connection."""
        longest = _milliseconds(self.statement_timeout)
        idle = min(self.statement_timeout, max(min(self.lock_timeout, _LONGEST_IDLE), _SHORTEST_IDLE))
        return {
            "search_path": self.database_schema,
            "statement_timeout": longest,
            "lock_timeout": _milliseconds(self.lock_timeout),
            # A gateway that is cut off, or stands still, in the middle of a transaction lets go of its rows before those who
            # wait for them give up: their whole groups would.
            "idle_in_transaction_session_timeout": _milliseconds(idle),
        }

    @property
    def limits_of_groups(self) -> dict[str, str]:
        """As `limits`, for a connection that writes groups."""
        return {**self.limits, "lock_timeout": _milliseconds(min(self.lock_timeout, _WAIT_OF_GROUP))}


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _milliseconds(seconds: float) -> str:
    return str(max(1, int(seconds * 1000)))
