"""The Assistants API: `assistants` of Azure OpenAI and compatible servers, `foundry-classic` of Azure AI Agents.

Law: one call of a conversation is one request: a run with its messages, or the outcomes that a run waits for.
"""
