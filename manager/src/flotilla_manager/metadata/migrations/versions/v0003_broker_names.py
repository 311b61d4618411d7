"""Add names of brokers."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("brokers", sa.Column("name", sa.String(length=253), nullable=True))
