"""The page at `/`: the agents of the gateway, and how to reach each.

Law: public, so it says what the public cards say and nothing else; no cookie, no script.
"""
