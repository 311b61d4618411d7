"""Migrations of the metadata's schema, run by `flotilla_manager.metadata.schema`."""
