"""Reads: the pool of connections, the queries that run on it, rows as records.

Law: a read never waits for a write, and runs outside of the event loop.
"""
