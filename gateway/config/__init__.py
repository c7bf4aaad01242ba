"""gateway.yaml as frozen values.

Law: every problem is reported at once, with file, line and column; no secret is ever printed.
"""
