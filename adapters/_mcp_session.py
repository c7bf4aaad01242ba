"""What may be known of an MCP session without its library."""

from gateway.tool_port import ToolError


class SessionForgotten(ToolError):
    """The server does not know the session any more, and so has not looked at the request."""
