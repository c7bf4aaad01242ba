"""The command line.

Law: a command imports what it needs when it runs, so that help and completion start at once.
"""
