"""What Alembic runs: the migrations, on the connection and in the transaction that it is given."""

from alembic import context

from flotilla_manager.metadata import tables

context.configure(connection=context.config.attributes["connection"], target_metadata=tables.metadata)
context.run_migrations()
