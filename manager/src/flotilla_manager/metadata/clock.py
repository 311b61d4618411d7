"""The database's clock as an SQL function. All timestamps use it, so clock skew between managers does not matter."""

from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class now_ms(FunctionElement[int]):  # noqa: N801 - named like an SQL function
    """Current time in milliseconds since 1970, when the statement runs and not when the transaction began."""

    type = BigInteger()
    inherit_cache = True


@compiles(now_ms, "postgresql")
def _postgresql(_: now_ms, __: SQLCompiler, **___: Any) -> str:  # noqa: ANN401 - signature of SQLAlchemy
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"


@compiles(now_ms, "sqlite")
def _sqlite(_: now_ms, __: SQLCompiler, **___: Any) -> str:  # noqa: ANN401 - signature of SQLAlchemy
    # unixepoch('subsec') needs SQLite 3.42. The precision of julianday() is sufficient for milliseconds.
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
