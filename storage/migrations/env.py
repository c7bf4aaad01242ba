"""Alembic runs this for every migration, on the connection that `storage.schema` gives it."""

from alembic import context

from storage.tables import Row

context.configure(
    connection=context.config.attributes["connection"], target_metadata=Row.metadata, render_as_batch=True
)
context.run_migrations()
