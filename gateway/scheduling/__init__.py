"""Which turns run in this process: queues, leases, orphaned turns, takeover.

Law: one turn of a thread runs at a time, under a lease that is held.
"""
