"""The manager's metadata in SQL: `open_store(url)` returns a Store on SQLite or PostgreSQL. See docs/metadata.md."""

from flotilla_manager.metadata.aio import AsyncMetadata
from flotilla_manager.metadata.engine import Limits
from flotilla_manager.metadata.errors import (
    DatabaseNotEmpty,
    DatabaseUnavailable,
    Fenced,
    IdTaken,
    InvalidDatabaseUrl,
    InvalidStateTransition,
    MetadataError,
    OutcomeUnknown,
    SchemaMissing,
    SchemaTooNew,
    StatementRejected,
    TopicExists,
    TopicMissing,
)
from flotilla_manager.metadata.store import Store, open_store

__all__ = [
    "AsyncMetadata",
    "DatabaseNotEmpty",
    "DatabaseUnavailable",
    "Fenced",
    "IdTaken",
    "InvalidDatabaseUrl",
    "InvalidStateTransition",
    "Limits",
    "MetadataError",
    "OutcomeUnknown",
    "SchemaMissing",
    "SchemaTooNew",
    "StatementRejected",
    "Store",
    "TopicExists",
    "TopicMissing",
    "open_store",
]
