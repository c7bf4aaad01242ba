"""The union of all commit points.

Law: the points of one commit are one unit, all or nothing; each says what must be true of its rows (generation, state).
"""

from gateway.ledger.api_keys import IssueKey, RevokeKey
from gateway.ledger.calls import Complete, Fail, Prepare, SetPendingHandle
from gateway.ledger.documents import Adopt, Import
from gateway.ledger.leases import Claim, CountTries, Fence, Heartbeat, Release, Renew, RequestCancel, TakeOver
from gateway.ledger.push import PushPoint
from gateway.ledger.retention import DeleteContext, EndDeletion, ExpireContext, ExpireTasks, MoveDeletion, PurgeContext
from gateway.ledger.tasks import Append, Close, Finish
from gateway.ledger.threads import (
    BeginEpoch,
    DeleteOrphan,
    Displace,
    KeepHandle,
    MarkHandleLost,
    MarkSynced,
    MarkUnsynced,
    RevertIfDisplaced,
    Rewind,
)
from gateway.ledger.tool_calls import ToolEnds, ToolStarts, ToolWaits
from gateway.ledger.turns import Accept, Decide, Resume, Suspend

CommitPoint = (
    Accept
    | Prepare
    | SetPendingHandle
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
    | MarkHandleLost
    | MarkUnsynced
    | MarkSynced
    | BeginEpoch
    | Rewind
    | Displace
    | RevertIfDisplaced
    | DeleteOrphan
    | KeepHandle
    | Fence
    | Heartbeat
    | RequestCancel
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
