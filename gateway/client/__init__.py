"""A small A2A client, which the command line uses.

Law: speaks the public wire only and imports nothing of the server.
"""
