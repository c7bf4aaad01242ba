"""How long an idle connection is kept for its next request. Law: the side that sends requests closes first; otherwise a
request now and then meets a connection that is just being closed, and is lost.

Most servers keep one for 5 s (uvicorn, Node.js) or longer, gunicorn for 2 s; most clients and load balancers for 60 s or less.
"""

SERVER_KEEP_ALIVE = 75
"""The seconds that an idle connection of a caller is kept."""

CLIENT_KEEP_ALIVE = 4.0
"""The limit for the gateway's own connections to backends, tools, receivers and other agents."""
