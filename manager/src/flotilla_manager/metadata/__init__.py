"""The manager's metadata in SQL: `open_store(url)` gives a Store, on SQLite or PostgreSQL. See docs/metadata.md."""

from flotilla_manager.metadata.aio import AsyncMetadata
from flotilla_manager.metadata.engine import Limits
from flotilla_manager.metadata.errors import (
    BadDatabaseUrl,
    DatabaseAway,
    DatabaseRefused,
    Fenced,
    IdTaken,
    MetadataError,
    MetadataPresent,
    NotForward,
    OutcomeUnknown,
    SchemaMissing,
    SchemaTooNew,
    TopicExists,
    TopicMissing,
)
from flotilla_manager.metadata.store import Store, open_store

__all__ = [
    "AsyncMetadata",
    "BadDatabaseUrl",
    "DatabaseAway",
    "DatabaseRefused",
    "Fenced",
    "IdTaken",
    "Limits",
    "MetadataError",
    "MetadataPresent",
    "NotForward",
    "OutcomeUnknown",
    "SchemaMissing",
    "SchemaTooNew",
    "Store",
    "TopicExists",
    "TopicMissing",
    "open_store",
]
