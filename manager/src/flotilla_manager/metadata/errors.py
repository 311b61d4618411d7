"""What can go wrong with metadata.

MetadataError
├── BadDatabaseUrl      the database's URL cannot be used: the text says what is allowed
├── DatabaseAway        nothing was changed, or not seen to be; it may work again by itself
│   └── OutcomeUnknown  the database went away during a commit: the change is there or it is not
├── SchemaMissing       the tables are not there, or older than this program: migrate() makes them
├── SchemaTooNew        the tables were made by a newer version of this program
├── Fenced              another manager is the writer now
├── TopicExists         a topic of that name is there already
├── TopicMissing        there is no such topic, or it is not ready
├── NotForward          a topic's state only ever goes forward
├── IdTaken             a client's id belongs to another topic, or a token's to another token
├── TooManyTokens       there are as many tokens as there may be
├── MetadataPresent     a rebuild would replace topics that are there
├── GroupMissing        there is no consumer group of that name
├── GroupHasMembers     a group has members, which know nothing of what is to be done
├── GroupChanged        a group is not as the writer remembers it: it has to be read again
├── TooManyGroups       there are as many groups as there may be
├── NotOwner            a member does not own the partitions that it wants to commit to
└── DatabaseRefused     the database refused a statement, for a reason that does not pass
"""

from collections.abc import Sequence

from flotilla.groups.state import Place


class MetadataError(Exception):
    """The root of everything that metadata raises."""


class BadDatabaseUrl(MetadataError):
    """The database's URL cannot be used. It is never shown, because a password may be in it."""


class DatabaseAway(MetadataError):
    """No connection, a time limit, a lock, a standby that only reads: everything that may pass by itself."""


class OutcomeUnknown(DatabaseAway):
    """The database went away while it was to commit, or took too long: ask again before you believe either."""


class SchemaMissing(MetadataError):
    """The tables are not there, or they are older than this program."""


class SchemaTooNew(MetadataError):
    """The tables were made by a newer version of this program."""


class Fenced(MetadataError):
    """Another manager is the writer now. Nothing was changed; whoever gets this has to stop deciding."""

    def __init__(self, epoch: int, current: int, url: str) -> None:
        super().__init__(f"this writer has epoch {epoch}, but the database has {current} ({url or 'no writer yet'})")
        self.epoch = epoch
        self.current = current


class TopicExists(MetadataError):
    """A topic of that name is there. Its id tells whether it is the caller's own, from a try with unknown outcome."""

    def __init__(self, name: str, topic_id: str) -> None:
        super().__init__(f"topic '{name}' exists already, with id {topic_id}")
        self.topic_id = topic_id


class TopicMissing(MetadataError):
    """There is no topic of that id, or it cannot be used in this way because it is not ready."""

    def __init__(self, topic_id: str, state: str | None) -> None:
        super().__init__(f"there is no topic {topic_id}" if state is None else f"topic {topic_id} is {state}")
        self.state = state


class NotForward(MetadataError):
    """A topic's state only ever goes forward: creating, ready, deleting, deleted."""


class IdTaken(MetadataError):
    """A producer or consumer of that id is registered with another topic, or a token has it."""


class TooManyTokens(MetadataError):
    """There are as many tokens as there may be."""


class MetadataPresent(MetadataError):
    """The database holds topics, which a rebuild would replace."""


class DatabaseRefused(MetadataError):
    """The database refused a statement, for a reason that does not pass by itself: a defect, or missing rights."""


class GroupMissing(MetadataError):
    """There is no consumer group of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no group '{name}'")


class GroupHasMembers(MetadataError):
    """A group has members: they would undo, or not notice, what somebody else does to it."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__(f"group '{name}' has {count} member{'s' if count != 1 else ''}")
        self.count = count


class GroupChanged(MetadataError):
    """A group is not as the writer remembers it, because a write that was given up took effect after all."""


class TooManyGroups(MetadataError):
    """There are as many groups as there may be."""


class NotOwner(MetadataError):
    """A member does not own some of the partitions that it wants to commit to, or got them later. Nothing changed."""

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(
            f"the member does not own {len(places)} of these partitions, or has got them since: "
            "stop work on them, and sync"
        )
        self.places = tuple(places)
