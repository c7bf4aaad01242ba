"""From which size on work on JSON leaves the event loop. Law: one number for all who decide it."""

LARGE = 1024 * 1024
"""Bytes. Reading or writing so much JSON takes some milliseconds."""
