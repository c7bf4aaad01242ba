"""Commands that inspect and manage a gateway: tasks, contexts, push notifications, keys, cards.

Law: only `keys` opens the database; every other command uses the public or the administration API.
"""
