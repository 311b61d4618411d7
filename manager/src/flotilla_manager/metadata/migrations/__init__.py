"""Alembic migrations of the metadata schema, run by `flotilla_manager.metadata.schema`."""
