"""Commands that inspect and manage a running gateway: tasks, contexts, keys, cards.

Law: uses the public and the administration API, never the database.
"""
