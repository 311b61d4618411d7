"""The database's clock, as SQL: the only one that metadata goes by, so that managers' clocks do not matter."""

from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class now_ms(FunctionElement[int]):  # noqa: N801 - it reads as the SQL function that it is
    """Milliseconds since 1970 at the moment in which the database computes it, not when the transaction began."""

    type = BigInteger()
    inherit_cache = True


@compiles(now_ms, "postgresql")
def _postgresql(_: now_ms, __: SQLCompiler, **___: Any) -> str:  # noqa: ANN401 - as SQLAlchemy calls it
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"


@compiles(now_ms, "sqlite")
def _sqlite(_: now_ms, __: SQLCompiler, **___: Any) -> str:  # noqa: ANN401 - as SQLAlchemy calls it
    # unixepoch('subsec') would be plainer, but SQLite has it from 3.42 on only; days have room for milliseconds.
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
