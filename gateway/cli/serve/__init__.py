"""Commands that start a gateway or check its configuration.

Law: a configuration that has a problem starts nothing.
"""
