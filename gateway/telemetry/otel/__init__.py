"""Spans for OpenTelemetry: what the seam tells of, as the SDK sends it.

Law: nothing else imports OpenTelemetry, and this is imported only where traces are on; a span is made in one piece, when it has
ended, with the ids that it is told with.
"""
