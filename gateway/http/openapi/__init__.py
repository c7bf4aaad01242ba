"""What the gateway serves over HTTP, described as OpenAPI 3.1: HTTP+JSON of both versions of A2A, and the admin API.

Law: made of the tables and types that route and read requests, when it is first asked for; it says nothing of a caller.
"""
