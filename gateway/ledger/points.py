"""The union of all commit points.

Law: the points of one commit are one unit, all or nothing; each says what must be true of its rows (generation, state).
"""

from gateway.ledger import (
    api_keys,
    calls,
    documents,
    duties,
    leases,
    push,
    quotas,
    retention,
    tasks,
    threads,
    tool_calls,
    turns,
)

_Task = tasks.Reveal | tasks.Finish | tasks.Close
_Turn = turns.Accept | turns.Suspend | turns.Resume | turns.Decide | tasks.Append | _Task
_Call = calls.Prepare | calls.NameCall | calls.Complete | calls.Fail | calls.DropPartial
_Refused = calls.MarkRefused | calls.SetAside | calls.GiveBack
_Tool = tool_calls.ToolStarts | tool_calls.ToolWaits | tool_calls.ToolEnds | tool_calls.ToolReported
_Lease = leases.Claim | leases.Renew | leases.Release | leases.Fence
_Process = leases.TakeOver | leases.CountTries | leases.TakeTriesBack | leases.Heartbeat | leases.RequestCancel
_Duty = duties.TakeDuty | duties.LeaveDuty
_Quota = quotas.ReportUse | quotas.WithdrawUse
_Thread = threads.MarkHandleLost | threads.MarkUnsynced | threads.MarkSynced | threads.Displace | threads.LeaveOut
_Moved = threads.ConfirmHandle | threads.BeginEpoch | threads.Rewind | threads.RevertIfDisplaced
_Handle = _Moved | threads.DeleteOrphan | threads.KeepHandle | threads.Withdraw
_Expiry = retention.DeleteContext | retention.ExpireContext | retention.PurgeContext | retention.ExpireTasks
_Deletion = retention.MoveDeletion | retention.EndDeletion | retention.MoveWithdrawal | retention.EndWithdrawal
_Outside = (
    documents.Adopt | documents.Import | api_keys.IssueKey | api_keys.RevokeKey | api_keys.EndSessions | push.PushPoint
)

_Work = _Process | _Duty | _Quota | _Expiry | _Deletion

CommitPoint = _Turn | _Call | _Refused | _Tool | _Lease | _Work | _Thread | _Handle | _Outside
QUEUES_BACKEND_JOBS: frozenset[type[CommitPoint]] = frozenset(
    {
        retention.DeleteContext,
        retention.ExpireContext,
        retention.PurgeContext,
        threads.Rewind,
        threads.RevertIfDisplaced,
        threads.DeleteOrphan,
        threads.Withdraw,
    }
)
"""Points after which there may be a deletion, or a withdrawal, to make at a backend."""
