"""Alembic environment: run the migrations on the caller's connection, in its transaction."""

from alembic import context

from flotilla_manager.metadata import tables

context.configure(connection=context.config.attributes["connection"], target_metadata=tables.metadata)
context.run_migrations()
