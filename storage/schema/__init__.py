"""Tables, migrations, and the opening of a database.

Law: what a released version has written opens and goes on.
"""
