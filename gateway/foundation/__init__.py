"""Time, ids, limits, addresses, logs: what every other package may use.

Law: knows nothing of A2A and imports no other package of the gateway.
"""
