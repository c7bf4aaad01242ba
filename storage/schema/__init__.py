"""Tables, migrations, the opening of a database, and its backups.

Law: a database of any released version opens and continues.
"""
