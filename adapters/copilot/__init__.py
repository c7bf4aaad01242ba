"""Copilot Studio, and any bot that speaks the Activity protocol: over Direct Line, or straight to the engine.

Law: an activity means the same on both wires; only who carries it, and who says that a turn is over, differs.
"""
