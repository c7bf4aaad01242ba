"""Alembic runs this for every migration, on the connection that `storage.schema.upgrade` gives it."""

from alembic import context

attributes = context.config.attributes
context.configure(connection=attributes["connection"], target_metadata=attributes["metadata"], render_as_batch=True)
context.run_migrations()
