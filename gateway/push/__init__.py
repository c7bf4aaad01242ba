"""Delivery of webhooks.

Law: the event log is the outbox; a delivery is repeated until it is confirmed or given up.
"""
