"""The ledger on SQLite.

Law: implements the ledger port and imports nothing of the gateway above it but the base of settings.
"""
