"""Commands that talk to an agent: send, stream, chat, and the answers to its questions.

Law: uses the public wire, as any other client.
"""
