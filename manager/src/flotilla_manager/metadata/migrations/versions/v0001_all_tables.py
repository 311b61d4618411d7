"""Create all tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables and indexes."""
    op.create_table(
        "brokers",
        sa.Column("serial", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("host", sa.String(length=253), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("peer_host", sa.String(length=253), nullable=False),
        sa.Column("peer_port", sa.Integer(), nullable=False),
        sa.Column("rack", sa.String(), nullable=True),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("cordoned", sa.Boolean(), nullable=False),
        sa.Column("wanted", sa.Boolean(), nullable=False),
        sa.Column("removed", sa.Boolean(), nullable=False),
        sa.CheckConstraint("port BETWEEN 1 AND 65535 AND peer_port BETWEEN 1 AND 65535", name=op.f("ck_brokers_ports")),
        sa.PrimaryKeyConstraint("serial", name=op.f("pk_brokers")),
        sa.UniqueConstraint("id", name=op.f("uq_brokers_id")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "managers",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_managers")),
    )
    op.create_table(
        "state",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("cluster_id", sa.String(length=32), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("writer_epoch", sa.BigInteger(), nullable=False),
        sa.Column("writer_url", sa.String(), nullable=False),
        sa.Column("writer_beat", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_state_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_state")),
    )
    op.create_table(
        "topics",
        sa.Column("serial", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("retention_ms", sa.BigInteger(), nullable=True),
        sa.Column("retention_bytes", sa.BigInteger(), nullable=True),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("state IN ('creating', 'ready', 'deleting', 'deleted')", name=op.f("ck_topics_state")),
        sa.CheckConstraint("retention_ms >= 0 AND retention_bytes >= 0", name=op.f("ck_topics_retention")),
        sa.PrimaryKeyConstraint("serial", name=op.f("pk_topics")),
        sa.UniqueConstraint("id", name=op.f("uq_topics_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "uq_topics_name_alive",
        "topics",
        ["name"],
        unique=True,
        postgresql_where=sa.text("state IN ('creating', 'ready')"),
        sqlite_where=sa.text("state IN ('creating', 'ready')"),
    )
    op.create_table(
        "consumers",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("topic_id", sa.String(length=32), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("cursor", sa.Integer(), nullable=False),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("partition >= 0 AND cursor >= 0", name=op.f("ck_consumers_partition")),
        sa.ForeignKeyConstraint(["topic_id"], ["topics.id"], name=op.f("fk_consumers_topic_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_consumers")),
    )
    op.create_index(op.f("ix_consumers_topic_id"), "consumers", ["topic_id"], unique=False)
    op.create_table(
        "partitions",
        sa.Column("topic_id", sa.String(length=32), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.CheckConstraint("partition >= 0", name=op.f("ck_partitions_partition")),
        sa.ForeignKeyConstraint(["topic_id"], ["topics.id"], name=op.f("fk_partitions_topic_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("topic_id", "partition", name=op.f("pk_partitions")),
    )
    op.create_table(
        "producers",
        sa.Column("serial", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("topic_id", sa.String(length=32), nullable=False),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["topic_id"], ["topics.id"], name=op.f("fk_producers_topic_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("serial", name=op.f("pk_producers")),
        sa.UniqueConstraint("id", name=op.f("uq_producers_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_producers_topic_id"), "producers", ["topic_id"], unique=False)
    op.create_table(
        "epochs",
        sa.Column("topic_id", sa.String(length=32), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("sealed_index", sa.BigInteger(), nullable=True),
        sa.Column("sealed_term", sa.BigInteger(), nullable=True),
        sa.Column("sealed_offset", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("epoch >= 1", name=op.f("ck_epochs_epoch")),
        sa.ForeignKeyConstraint(
            ["topic_id", "partition"],
            ["partitions.topic_id", "partitions.partition"],
            name=op.f("fk_epochs_topic_id_partition"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("topic_id", "partition", "epoch", name=op.f("pk_epochs")),
    )
    op.create_table(
        "positions",
        sa.Column("consumer_id", sa.String(length=32), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("next_offset", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("partition >= 0 AND next_offset >= 0", name=op.f("ck_positions_next_offset")),
        sa.ForeignKeyConstraint(
            ["consumer_id"], ["consumers.id"], name=op.f("fk_positions_consumer_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("consumer_id", "partition", name=op.f("pk_positions")),
    )
    op.create_table(
        "replicas",
        sa.Column("topic_id", sa.String(length=32), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("broker_id", sa.String(length=32), nullable=False),
        sa.CheckConstraint("position >= 0", name=op.f("ck_replicas_position")),
        sa.ForeignKeyConstraint(
            ["topic_id", "partition", "epoch"],
            ["epochs.topic_id", "epochs.partition", "epochs.epoch"],
            name=op.f("fk_replicas_topic_id_partition_epoch"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("topic_id", "partition", "epoch", "position", name=op.f("pk_replicas")),
    )
    op.create_index(op.f("ix_replicas_broker_id"), "replicas", ["broker_id"], unique=False)
    op.create_index("uq_replicas_broker", "replicas", ["topic_id", "partition", "epoch", "broker_id"], unique=True)
