"""How long a connection is kept for its next request. Law: who sends closes first; else a request now and then meets a
connection that is just being closed, and is lost.

Most servers keep one for 5 s (uvicorn, Node.js) or longer, gunicorn for 2 s; most clients and load balancers for 60 s or less.
"""

SERVED_SECONDS = 75
"""Those of our callers."""

OPENED_SECONDS = 4.0
"""Our own, to backends, tools, receivers and other agents: none is used again that was idle for longer."""
