"""The statements and queries, written with SQLAlchemy Core.

Law: imported only to compile `storage/compiled.py`, by migrations and by tests.
"""
