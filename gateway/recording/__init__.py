"""Recordings of what goes over the wire to backends and tools: written, read, and played again.

Law: a file is what a person reads and compares; no secret of the configuration reaches one, and what is masked compares as
equal.
"""
