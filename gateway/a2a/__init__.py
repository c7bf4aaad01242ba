"""A2A 1.0: its values, errors, task states and wire codecs, and the tool-calls extension.

Law: pure, and in the protocol's own words only; no backend, no store, no transport.
"""
