"""Runs one turn: service calls, tool calls, the journal, the fan-out of events.

Law: waits, never decides; nothing is shown before it is stored.
"""
