"""Sources of tools that the gateway runs: HTTP requests and MCP servers.

Law: a call that may have reached its tool is never repeated.
"""
