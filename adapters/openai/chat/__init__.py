"""Chat Completions, of OpenAI and compatible servers.

Law: the backend keeps nothing; each request carries the whole conversation.
"""
