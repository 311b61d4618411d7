"""The schema's versions: Alembic, run from code, in the caller's transaction and one process after the other.

Revisions are numbers of four digits, so that a newer one is known as such by whoever has never heard of it. Alembic is
loaded only where there is something to do: it would take every process a third of a second at its start.
"""

from pathlib import Path

from sqlalchemy import Connection, insert, inspect, text

from flotilla_manager.metadata import tables
from flotilla_manager.metadata.errors import SchemaTooNew

HEAD = "0002"  # the newest migration
FOLDER = Path(__file__).parent / "migrations"

_LOCK = 0x666C6F74696C6C61  # PostgreSQL's advisory lock of this database: one that migrates at a time
_STATEMENT_TIMEOUT = "60s"  # a migration may take longer than what is done all the time


def is_current(connection: Connection) -> bool:
    """Tell whether the schema is the newest that this program knows. Raises SchemaTooNew."""
    if not inspect(connection).has_table("alembic_version"):
        return False
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    if found is not None and found > HEAD:
        raise SchemaTooNew(f"the database has schema {found}, made by a newer version; this one knows {HEAD}: upgrade")
    return bool(found == HEAD)


def upgrade(connection: Connection) -> None:
    """Bring the schema up to date. Raises SchemaTooNew."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL statement_timeout = '{_STATEMENT_TIMEOUT}'"))
        connection.execute(text(f"SET LOCAL lock_timeout = '{_STATEMENT_TIMEOUT}'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    if not is_current(connection):
        _run_alembic(connection)


def _run_alembic(connection: Connection) -> None:
    from alembic import command  # noqa: PLC0415 - loaded only where it is needed; see above
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def insert_state(connection: Connection, cluster_id: str) -> None:
    """Make the one row of `state`."""
    values = {"id": 1, "cluster_id": cluster_id, "version": 1, "writer_epoch": 0, "writer_url": "", "writer_beat": 0}
    connection.execute(insert(tables.state).values(**values))
