"""INSERT ... ON CONFLICT, which both databases have and SQLAlchemy has once for each. Statements are made once."""

from functools import cache

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite


@cache
def upsert(dialect: str, table: Table, *key: str) -> postgresql.Insert | sqlite.Insert:
    """Insert a row; if there is one with that key, give it the other values of the new one."""
    insert = _insert(dialect, table)
    others = {column.name: insert.excluded[column.name] for column in table.c if column.name not in key}
    return insert.on_conflict_do_update(index_elements=key, set_=others)


@cache
def insert_missing(dialect: str, table: Table, *key: str) -> postgresql.Insert | sqlite.Insert:
    """Insert a row unless there is one with that key."""
    return _insert(dialect, table).on_conflict_do_nothing(index_elements=key)


def _insert(dialect: str, table: Table) -> postgresql.Insert | sqlite.Insert:
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
