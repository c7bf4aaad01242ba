"""What those who watch the gateway read: the access log, metrics, the audit log, traces.

Law: it hears what the seam (`ports/observer.py`) tells and reads nothing else; what is off is not imported.
"""
