"""The statements and queries of what callers use of their limits. Law: as in `sql/turns.py`."""

from sqlalchemy import bindparam, delete, select

from storage.schema.tables import quota_use
from storage.sql.fragments import Write, given, lapsed, matches, some, upsert

DELETE_LAPSED_USE = Write(
    "delete the reports that have lapsed", delete(quota_use).where(lapsed(quota_use.c.until)), None
)

REPORT_USE = Write(
    "report what callers use",
    upsert(quota_use)
    .values(given("process", "until", "callers"))
    .on_conflict_do_update(index_elements=["process"], set_=given("until", "callers")),
)

WITHDRAW_USE = Write(
    "withdraw the report of the process", delete(quota_use).where(matches(quota_use, process="process")), None
)

# In the order of ReportedUse.
REPORTED_USE = (
    select(*some(quota_use, "process", "callers"))
    .where(quota_use.c.process != bindparam("process"), ~lapsed(quota_use.c.until))
    .order_by(quota_use.c.process)
)
