"""The demo: scripted backends, an agent in Python, and the configuration in front of them.

Law: the gateway of the demo is the real one; only the services behind it are scripted.
"""
