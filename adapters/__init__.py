"""One package for each family of backends; entry points name the factories.

Law: a family imports the gateway and `adapters.http`, never another family.
"""
