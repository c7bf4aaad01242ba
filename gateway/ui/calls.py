"""What went over the wire for a service call, where it was recorded."""

import asyncio

from gateway.a2a.errors import NotFound
from gateway.ui.tasks import head_of
from gateway.ui.visit import Outcome, Page, Visit

LONGEST = 256 * 1024
"""Characters of an exchange that are shown."""


async def show(visit: Visit) -> Outcome:
    task, call, recordings = await head_of(visit), visit.path["call"], visit.parts.recordings
    places = await visit.parts.ledger.admin.locate(visit.caller.tenant, call, patience=0)
    if not any(place.task == task.id for place in places.places):
        raise NotFound("There is no such call of this task.")
    exchanges = () if recordings is None else await asyncio.to_thread(recordings.of_call, task.context_id, call)
    values = {"task": task, "call": call, "exchanges": exchanges, "records": recordings is not None, "longest": LONGEST}
    return Page("call.html", "What went over the wire", values)
