"""Retention, expiry of questions, deletions at backends.

Law: works from the ledger alone, in small steps, beside the traffic.
"""
