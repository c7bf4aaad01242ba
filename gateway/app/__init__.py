"""The composition root: builds the parts, connects them, reloads and stops them.

Law: the only package that knows all others.
"""
