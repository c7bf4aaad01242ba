"""Decisions: the turn, tools and approvals, history, ownership, the record of a task.

Law: pure; decides, never waits, stores or sends.
"""
