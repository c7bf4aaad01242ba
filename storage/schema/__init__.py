"""Tables, migrations, and the opening of a database.

Law: a database of any released version opens and continues.
"""
