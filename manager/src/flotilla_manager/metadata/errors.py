"""Errors of the metadata store.

MetadataError
├── InvalidDatabaseUrl      the URL of the database is invalid or unsupported
├── DatabaseUnavailable     transient: no connection, a timeout, a lock, a standby; no known change
│   └── OutcomeUnknown      the connection failed during a commit: the change is made or not
├── SchemaMissing           the schema is missing or old: migrate() creates or updates it
├── SchemaTooNew            a newer version of this program has migrated the schema
├── Fenced                  another manager is the writer
├── TopicExists             the name of a topic is in use
├── TopicMissing            the topic does not exist or is not ready
├── InvalidStateTransition  the state of a topic cannot go back
├── IdTaken                 the id of a client or token is in use
├── TooManyTokens           the limit of tokens is reached
├── DatabaseNotEmpty        a rebuild would replace existing topics
├── GroupMissing            the consumer group does not exist
├── GroupHasMembers         the operation requires a group without members
├── GroupChanged            the writer's copy of a group is outdated: load it again
├── TooManyGroups           the limit of groups is reached
├── NotOwner                a member commits partitions that it does not own
└── StatementRejected       permanent: the database rejected a statement
"""

from collections.abc import Sequence

from flotilla.groups.state import PartitionId


class MetadataError(Exception):
    """Base class of all errors of the metadata store."""


class InvalidDatabaseUrl(MetadataError):
    """The URL of the database is invalid or unsupported. The message omits the URL: it may contain a password."""


class DatabaseUnavailable(MetadataError):
    """The database is temporarily unavailable: no connection, a timeout, a lock, or a read-only standby."""


class OutcomeUnknown(DatabaseUnavailable):
    """The connection failed during a commit, or the call exceeded its deadline. Read the state before a retry."""


class SchemaMissing(MetadataError):
    """The schema is missing, or older than this program requires."""


class SchemaTooNew(MetadataError):
    """A newer version of this program has migrated the schema."""


class Fenced(MetadataError):
    """Another manager is the writer. Nothing was changed; the caller must step down."""

    def __init__(self, epoch: int, current: int, url: str) -> None:
        super().__init__(f"writer epoch {epoch} was replaced by epoch {current} ({url or 'no writer yet'})")
        self.epoch = epoch
        self.current = current


class TopicExists(MetadataError):
    """The name is in use. `topic_id` shows whether an earlier attempt of the caller, of unknown outcome, succeeded."""

    def __init__(self, name: str, topic_id: str) -> None:
        super().__init__(f"topic '{name}' already exists with id {topic_id}")
        self.topic_id = topic_id


class TopicMissing(MetadataError):
    """The topic does not exist, or its state does not allow the operation."""

    def __init__(self, topic_id: str, state: str | None) -> None:
        super().__init__(f"topic {topic_id} does not exist" if state is None else f"topic {topic_id} is {state}")
        self.state = state


class InvalidStateTransition(MetadataError):
    """The state of a topic cannot go back in: creating, ready, deleting, deleted."""


class IdTaken(MetadataError):
    """The id of a client is registered with another topic, or the id of a token is in use."""


class TooManyTokens(MetadataError):
    """The limit of tokens is reached."""


class DatabaseNotEmpty(MetadataError):
    """The database contains topics, which a rebuild would replace."""


class StatementRejected(MetadataError):
    """The database rejected a statement permanently: a bug, or missing privileges."""


class GroupMissing(MetadataError):
    """The consumer group does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(f"group '{name}' does not exist")


class GroupHasMembers(MetadataError):
    """The group has members. They would overwrite or miss a change from outside."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__(f"group '{name}' has {count} member{'s' if count != 1 else ''}")
        self.count = count


class GroupChanged(MetadataError):
    """The writer's copy of a group is outdated, because a write with unknown outcome was committed."""


class TooManyGroups(MetadataError):
    """The limit of groups is reached."""


class NotOwner(MetadataError):
    """A member commits partitions that it does not own, or got in a later generation. Nothing was changed."""

    def __init__(self, member_id: str, generation: int, partitions: Sequence[PartitionId]) -> None:
        super().__init__(f"member '{member_id}' does not own all partitions of its commit in generation {generation}")
        self.member_id = member_id
        self.generation = generation
        self.partitions = tuple(partitions)
