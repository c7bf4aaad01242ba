"""The core of the product, the A2A bindings and the command line.

Law: it finds adapters and stores by entry point and imports none of them.
"""
