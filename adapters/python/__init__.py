"""Agents and tools that are Python functions.

Law: the function runs outside of the gateway's own code paths; what it raises never reaches a caller.
"""
