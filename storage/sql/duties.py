"""The statements and queries of what one process does for all. Law: as in `sql/turns.py`."""

from sqlalchemy import bindparam, delete, or_, select

from storage.schema.tables import duty
from storage.sql.fragments import Write, given, lapsed, matches, some, upsert

TAKE_DUTY = Write(
    "take the duty",
    upsert(duty)
    .values(given("holder", "until", name="duty"))
    .on_conflict_do_update(
        index_elements=["name"],
        set_=given("holder", "until"),
        where=or_(duty.c.holder == bindparam("holder"), lapsed(duty.c.until)),
    ),
)

LEAVE_DUTY = Write("leave the duty", delete(duty).where(matches(duty, name="duty", holder="holder")), rows=None)

# In the order of HeldDuty.
DUTY = select(*some(duty, "holder", "until")).where(matches(duty, name="duty"))
