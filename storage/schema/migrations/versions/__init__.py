"""The migrations, one module each, in the order of their numbers.

Law: as of the package above.
"""
