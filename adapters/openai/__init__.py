"""Services with an API of OpenAI: what the two wires share lies here, each wire in a folder.

Law: an adapter translates; it never stores, retries or runs tools.
"""
