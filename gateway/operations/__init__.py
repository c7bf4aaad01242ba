"""The eleven operations of A2A, and whole contexts.

Law: check everything, commit once, then start the work.
"""
