"""The HTTP client of all adapters: requests, server-sent events, errors, settings.

Law: the only package of the adapters that imports the client library.
"""
