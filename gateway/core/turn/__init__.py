"""The state machine of one turn: adapter events in, commands out.

Law: pure; only the machine writes its own fields.
"""
