"""Add consumer groups, tokens, batch limits of topics, and TLS of brokers."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, and create the tables and indexes."""
    op.add_column("state", sa.Column("generation_min", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("topics", sa.Column("batch_bytes_max", sa.BigInteger(), nullable=True))
    op.add_column("topics", sa.Column("compression", sa.String(length=16), nullable=True))
    op.add_column("brokers", sa.Column("tls", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("grants", sa.String(), nullable=False),
        sa.Column("bytes_per_s", sa.BigInteger(), nullable=True),
        sa.Column("requests_per_s", sa.BigInteger(), nullable=True),
        sa.Column("in_flight_bytes", sa.BigInteger(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
    )
    op.create_table(
        "groups",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("strategy", sa.String(length=16), nullable=True),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("generation >= 0", name=op.f("ck_groups_generation")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_groups")),
    )
    op.create_table(
        "members",
        sa.Column("group_name", sa.String(length=200), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("topics", sa.String(), nullable=False),
        sa.Column("timeout_ms", sa.BigInteger(), nullable=False),
        sa.Column("joined", sa.BigInteger(), nullable=False),
        sa.Column("synced", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_name"], ["groups.name"], name=op.f("fk_members_group_name"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("group_name", "id", name=op.f("pk_members")),
    )
    _create_holdings()
    _create_commits()


def _create_holdings() -> None:
    op.create_table(
        "holdings",
        sa.Column("group_name", sa.String(length=200), nullable=False),
        sa.Column("topic_id", sa.String(length=32), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=True),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("target", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(
            ["group_name"], ["groups.name"], name=op.f("fk_holdings_group_name"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["topic_id"], ["topics.id"], name=op.f("fk_holdings_topic_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("group_name", "topic_id", "partition", name=op.f("pk_holdings")),
    )
    op.create_index(op.f("ix_holdings_topic_id"), "holdings", ["topic_id"], unique=False)


def _create_commits() -> None:
    op.create_table(
        "commits",
        sa.Column("group_name", sa.String(length=200), nullable=False),
        sa.Column("topic_id", sa.String(length=32), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("next_offset", sa.BigInteger(), nullable=False),
        sa.Column("note", sa.String(length=1000), nullable=True),
        sa.Column("committed_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("partition >= 0 AND next_offset >= 0", name=op.f("ck_commits_next_offset")),
        sa.ForeignKeyConstraint(
            ["group_name"], ["groups.name"], name=op.f("fk_commits_group_name"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["topic_id"], ["topics.id"], name=op.f("fk_commits_topic_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("group_name", "topic_id", "partition", name=op.f("pk_commits")),
    )
    op.create_index(op.f("ix_commits_topic_id"), "commits", ["topic_id"], unique=False)
