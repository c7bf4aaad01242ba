"""Every commit point there is.

Law: a commit point is one unit, all or nothing; it says what must be true of the rows that it finds (generation, state).
"""

from gateway.api_keys import IssueKey, RevokeKey
from gateway.commits.accepting import Accept
from gateway.commits.calls import Complete, Fail, Pending, Prepare
from gateway.commits.forgetting import (
    DeleteContext,
    EndDeletion,
    ExpireContext,
    ExpireTasks,
    MoveDeletion,
    PurgeContext,
)
from gateway.commits.importing import Adopt, Import
from gateway.commits.leases import AskCancel, Beat, Claim, CountTries, Fence, Release, Renew, TakeOver
from gateway.commits.tasks import Append, Close, Finish
from gateway.commits.threads import BeginEpoch, Displace, Keep, Lose, Orphan, Rewind, Synced, TakeBack, Unsync
from gateway.commits.tools import ToolEnds, ToolStarts, ToolWaits
from gateway.commits.waiting import Decide, Resume, Suspend
from gateway.push_records import PushPoint

CommitPoint = (
    Accept
    | Prepare
    | Pending
    | Complete
    | Fail
    | ToolStarts
    | ToolWaits
    | ToolEnds
    | TakeOver
    | Claim
    | CountTries
    | Suspend
    | Resume
    | Decide
    | Finish
    | Close
    | Append
    | Renew
    | Release
    | Lose
    | Unsync
    | Synced
    | BeginEpoch
    | Rewind
    | Displace
    | TakeBack
    | Orphan
    | Keep
    | Fence
    | Beat
    | AskCancel
    | DeleteContext
    | ExpireContext
    | PurgeContext
    | ExpireTasks
    | MoveDeletion
    | EndDeletion
    | Adopt
    | Import
    | IssueKey
    | RevokeKey
    | PushPoint
)
