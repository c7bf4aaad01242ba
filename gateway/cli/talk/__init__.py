"""Commands that talk to an agent: send, stream, chat, approvals.

Law: uses the public wire, as any other client.
"""
