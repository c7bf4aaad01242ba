"""Alembic migrations.

Law: a migration of a released version never changes.
"""
