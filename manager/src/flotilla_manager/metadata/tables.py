"""Table definitions. The migrations create exactly these; `flotilla_manager.model` has the classes of their rows.

- `state` has one row. Every change of topology locks it first, which serializes such changes.
- The key of a topic is its id. Its name is unique among topics in `creating` and `ready` only, so the name of a topic
  in `deleting` is free.
- Serials are never reused, and are assigned under the lock of `state`. A reader that has seen a serial will not find a
  new row with a lower one.
- Members of epochs are broker ids without a foreign key: a rebuild may find members whose broker is unknown.
- `epochs` keeps the ends of sealed epochs; `partitions.epoch` is the current epoch.
- Of the text of a token, only a digest is stored. Adding or deleting a token increments the version of the topology.
- A change of a group's members or holdings locks the group exclusively (see `locks`); a commit locks it in shared mode.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    false,
    text,
)

from flotilla.limits import NOTE_LENGTH_MAX

ID_LENGTH = 32
NAME_LENGTH = 200
TOKEN_ID_LENGTH = 16
DIGEST_LENGTH = 64
MEMBER_ID_LENGTH = 64

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite generates keys only for columns of type INTEGER, which has 64 bits there.
_Serial = BigInteger().with_variant(Integer, "sqlite")
_Id = String(ID_LENGTH)
_ALIVE = text("state IN ('creating', 'ready')")


def _topic_id(*, primary_key: bool = False) -> Column[str]:
    key = ForeignKey("topics.id", ondelete="CASCADE")
    return Column("topic_id", _Id, key, primary_key=primary_key, nullable=False)


state = Table(
    "state",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("cluster_id", _Id, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("writer_epoch", BigInteger, nullable=False),
    Column("writer_url", String, nullable=False),
    Column("writer_beat", BigInteger, nullable=False),
    Column("generation_min", BigInteger, nullable=False, server_default="0"),  # first generation of new groups
    CheckConstraint("id = 1", name="one_row"),
)

topics = Table(
    "topics",
    metadata,
    Column("serial", _Serial, primary_key=True),
    Column("id", _Id, nullable=False, unique=True),
    Column("name", String(NAME_LENGTH), nullable=False),
    Column("state", String(16), nullable=False),
    Column("retention_ms", BigInteger),
    Column("retention_bytes", BigInteger),
    Column("owner", String),
    Column("created_ms", BigInteger, nullable=False),
    Column("batch_bytes_max", BigInteger),
    Column("compression", String(16)),
    CheckConstraint("state IN ('creating', 'ready', 'deleting', 'deleted')", name="state"),
    CheckConstraint("retention_ms >= 0 AND retention_bytes >= 0", name="retention"),
    Index("uq_topics_name_alive", "name", unique=True, postgresql_where=_ALIVE, sqlite_where=_ALIVE),
    sqlite_autoincrement=True,
)

partitions = Table(
    "partitions",
    metadata,
    _topic_id(primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("epoch", Integer, nullable=False),
    CheckConstraint("partition >= 0", name="partition"),
)

epochs = Table(
    "epochs",
    metadata,
    Column("topic_id", _Id, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("sealed_index", BigInteger),
    Column("sealed_term", BigInteger),
    Column("sealed_offset", BigInteger),
    CheckConstraint("epoch >= 1", name="epoch"),
    ForeignKeyConstraint(
        ["topic_id", "partition"], ["partitions.topic_id", "partitions.partition"], ondelete="CASCADE"
    ),
)

replicas = Table(
    "replicas",
    metadata,
    Column("topic_id", _Id, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("broker_id", _Id, nullable=False, index=True),
    CheckConstraint("position >= 0", name="position"),
    ForeignKeyConstraint(
        ["topic_id", "partition", "epoch"],
        ["epochs.topic_id", "epochs.partition", "epochs.epoch"],
        ondelete="CASCADE",
    ),
    Index("uq_replicas_broker", "topic_id", "partition", "epoch", "broker_id", unique=True),
)

brokers = Table(
    "brokers",
    metadata,
    Column("serial", _Serial, primary_key=True),
    Column("id", _Id, nullable=False, unique=True),
    Column("host", String(253), nullable=False),
    Column("port", Integer, nullable=False),
    Column("peer_host", String(253), nullable=False),
    Column("peer_port", Integer, nullable=False),
    Column("rack", String),
    Column("active", Boolean, nullable=False),
    Column("cordoned", Boolean, nullable=False),
    Column("wanted", Boolean, nullable=False),
    Column("removed", Boolean, nullable=False),
    Column("tls", Boolean, nullable=False, server_default=false()),
    Column("name", String(253)),
    CheckConstraint("port BETWEEN 1 AND 65535 AND peer_port BETWEEN 1 AND 65535", name="ports"),
    sqlite_autoincrement=True,
)

broker_starts = Table(  # the last known start of each broker; changes every second, without a new version
    "broker_starts",
    metadata,
    Column("broker_id", _Id, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("token", String(ID_LENGTH), nullable=False),
    Column("lsn", BigInteger, nullable=False),
)

managers = Table(
    "managers",
    metadata,
    Column("name", String, primary_key=True),
    Column("role", String(16), nullable=False),
    Column("url", String, nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
)

# Columns that change with heartbeats have no index, so that PostgreSQL can use heap-only updates (HOT).
producers = Table(
    "producers",
    metadata,
    Column("serial", _Serial, primary_key=True),
    Column("id", _Id, nullable=False, unique=True),
    _topic_id(),
    Column("seen_ms", BigInteger, nullable=False),
    Index(None, "topic_id"),
    sqlite_autoincrement=True,
)

consumers = Table(
    "consumers",
    metadata,
    Column("id", _Id, primary_key=True),
    _topic_id(),
    Column("partition", Integer),
    Column("version", BigInteger, nullable=False),
    Column("cursor", Integer, nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
    CheckConstraint("partition >= 0 AND cursor >= 0", name="partition"),
    Index(None, "topic_id"),
)

positions = Table(
    "positions",
    metadata,
    Column("consumer_id", _Id, ForeignKey("consumers.id", ondelete="CASCADE"), primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("next_offset", BigInteger, nullable=False),
    CheckConstraint("partition >= 0 AND next_offset >= 0", name="next_offset"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(TOKEN_ID_LENGTH), primary_key=True),
    Column("name", String(NAME_LENGTH), nullable=False),
    Column("digest", String(DIGEST_LENGTH), nullable=False),
    Column("grants", String, nullable=False),  # for example "produce:orders.* consume:*"
    Column("bytes_per_s", BigInteger),
    Column("requests_per_s", BigInteger),
    Column("in_flight_bytes", BigInteger),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
)

groups = Table(
    "groups",
    metadata,
    Column("name", String(NAME_LENGTH), primary_key=True),
    Column("strategy", String(16)),  # of the current or last members
    Column("generation", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    CheckConstraint("generation >= 0", name="generation"),
)


def _group_name() -> Column[str]:
    return Column("group_name", String(NAME_LENGTH), ForeignKey("groups.name", ondelete="CASCADE"), primary_key=True)


members = Table(
    "members",
    metadata,
    _group_name(),
    Column("id", String(MEMBER_ID_LENGTH), primary_key=True),
    Column("topics", String, nullable=False),  # names, separated by spaces
    Column("timeout_ms", BigInteger, nullable=False),
    Column("joined", BigInteger, nullable=False),  # generation of the last join
    Column("synced", BigInteger, nullable=False),  # generation of the last sync
)

holdings = Table(  # assigned partitions of a group: current and next owner
    "holdings",
    metadata,
    _group_name(),
    _topic_id(primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("owner", String(MEMBER_ID_LENGTH)),
    Column("since", BigInteger, nullable=False),  # generation in which the owner got it
    Column("target", String(MEMBER_ID_LENGTH)),
    Index(None, "topic_id"),
)

commits = Table(
    "commits",
    metadata,
    _group_name(),
    _topic_id(primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("next_offset", BigInteger, nullable=False),
    Column("note", String(NOTE_LENGTH_MAX)),
    Column("committed_ms", BigInteger, nullable=False),
    CheckConstraint("partition >= 0 AND next_offset >= 0", name="next_offset"),
    Index(None, "topic_id"),
)
