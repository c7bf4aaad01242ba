"""Services that speak an API of OpenAI, and what their two wires share.

Law: an adapter translates; it never stores, retries or runs tools.
"""
