"""A2A 1.0 as JSON: decoding of requests, encoding of results and events.

Law: pure; bytes in, values out, and the reverse.
"""
