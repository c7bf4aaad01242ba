"""Commit points as units of work, and the one writer that groups them into transactions.

Law: a unit is applied whole or not at all; its caller learns of it when it is durable.
"""
