"""What all commands share: parameters, connection, terminal, exit codes.

Law: results go to standard output, everything else to standard error.
"""
