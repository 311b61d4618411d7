"""Add the last starts of brokers."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "broker_starts",
        sa.Column("broker_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("token", sa.String(length=32), nullable=False),
        sa.Column("lsn", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("broker_id", name=op.f("pk_broker_starts")),
    )
