"""The ledger on PostgreSQL.

Law: as that of `storage`; only `storage.postgres` names the library of PostgreSQL.
"""
