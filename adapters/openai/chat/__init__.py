"""Chat Completions, OpenAI's and everything compatible.

Law: the backend keeps nothing; each request carries the whole view.
"""
