"""Direct Line 3.0: a conversation that the service keeps for a bot, with a token of its own.

Law: only `service.py` sends requests; who has said what, and when a turn is over, is decided without waiting.
"""
