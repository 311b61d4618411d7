"""INSERT ... ON CONFLICT for both dialects, with cached statements."""

from functools import cache

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite


@cache
def upsert(dialect: str, table: Table, *key: str) -> postgresql.Insert | sqlite.Insert:
    """Insert a row, or update the other columns of the row with that key."""
    insert = _insert(dialect, table)
    others = {column.name: insert.excluded[column.name] for column in table.c if column.name not in key}
    return insert.on_conflict_do_update(index_elements=key, set_=others)


@cache
def insert_missing(dialect: str, table: Table, *key: str) -> postgresql.Insert | sqlite.Insert:
    """Insert a row if there is none with that key."""
    return _insert(dialect, table).on_conflict_do_nothing(index_elements=key)


def _insert(dialect: str, table: Table) -> postgresql.Insert | sqlite.Insert:
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
