"""The ledger port: records, commit points, event rows.

Law: pure; a store implements this and needs nothing above it.
"""
