"""Agents of Microsoft Foundry: the Responses wire with the name of an agent in the place of a model.

Law: what an agent is stands at the service; the gateway sends no instructions, and tools only where the agent takes them.
"""
