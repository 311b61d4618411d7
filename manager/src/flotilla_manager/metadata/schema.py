"""Schema migrations with Alembic, in the caller's transaction and under a lock.

Revisions are four-digit numbers, so that an old program detects an unknown revision as newer. Alembic is imported only
for a migration, because the import takes a third of a second.
"""

from pathlib import Path

from sqlalchemy import Connection, insert, inspect, text

from flotilla_manager.metadata import tables
from flotilla_manager.metadata.errors import SchemaTooNew

HEAD = "0004"  # the newest migration
FOLDER = Path(__file__).parent / "migrations"

_LOCK = 0x666C6F74696C6C61  # PostgreSQL advisory lock: one process migrates at a time
_STATEMENT_TIMEOUT = "60s"  # a migration may take longer than other statements


def is_current(connection: Connection) -> bool:
    """Return whether the schema has revision `HEAD`. Raises SchemaTooNew."""
    if not has_tables(connection):
        return False
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    if found is not None and found > HEAD:
        raise SchemaTooNew(f"the database has schema {found} of a newer version; this version supports {HEAD}: upgrade")
    return bool(found == HEAD)


def has_tables(connection: Connection) -> bool:
    """Return whether the database has a schema of any version."""
    return inspect(connection).has_table("alembic_version")


def upgrade(connection: Connection) -> None:
    """Migrate the schema to `HEAD`. Raises SchemaTooNew."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL statement_timeout = '{_STATEMENT_TIMEOUT}'"))
        connection.execute(text(f"SET LOCAL lock_timeout = '{_STATEMENT_TIMEOUT}'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    if not is_current(connection):
        _run_alembic(connection)


def _run_alembic(connection: Connection) -> None:
    from alembic import command  # noqa: PLC0415 - see the module docstring
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def insert_state(connection: Connection, cluster_id: str) -> None:
    """Insert the only row of `state`."""
    values = {"id": 1, "cluster_id": cluster_id, "version": 1, "writer_epoch": 0, "writer_url": "", "writer_beat": 0}
    connection.execute(insert(tables.state).values(**values))
