"""What a database of PostgreSQL has besides the tables of the ledger. Law: nothing here is a fact of the ledger."""

from sqlalchemy import BigInteger, Column, MetaData, String, Table, Text

metadata = MetaData()

_TEXT = Text(collation="C")

Table("alembic_version", metadata, Column("version_num", String(32), primary_key=True))

Table("ledger_format", metadata, Column("oldest", BigInteger, nullable=False))
"""The oldest version of the code that may use the schema: one row."""

Table(
    "ledger_writer",
    metadata,
    Column("id", _TEXT, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
)
"""A row for each process that writes: the number of the last group that it has committed, and when, by the server's clock."""

FUNCTIONS = (
    """
    CREATE FUNCTION server_time() RETURNS bigint LANGUAGE sql VOLATILE AS
    $$ SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) $$
    """,
    """
    CREATE FUNCTION push_due() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      UPDATE push_config SET due_at = 0 WHERE task = NEW.task AND state = 'active' AND due_at IS NULL;
      RETURN NULL;
    END $$
    """,
    "CREATE TRIGGER push_due AFTER INSERT ON event FOR EACH ROW EXECUTE FUNCTION push_due()",
)
"""The time of the server's clock; and each appended event makes its delivery due, in the same unit."""
