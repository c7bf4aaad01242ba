"""What a plug-in sees: conversation items, the adapter port, capabilities, the tool port.

Law: pure values and protocols; every public name here is an interface for third parties.
"""
