"""The Responses API, with Conversations and responses in the background.

Law: a handle moves only with a response that completed.
"""
