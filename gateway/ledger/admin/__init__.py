"""What the pages for operators read of a ledger, over all principals of a tenant: records, and the port `AdminReads`.

Law: pure; only the pages, what is derived for them (`core/diagnosis`) and stores import this. Every read is bounded, in rows
and in characters, and says where it stopped.
"""
