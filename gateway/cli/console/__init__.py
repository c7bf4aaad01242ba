"""Shared by all commands: parameters, connection, terminal, exit codes.

Law: results go to standard output, everything else to standard error.
"""
