"""The client of Spark's processes."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_flotilla.options import Connection, OptionInvalid

if TYPE_CHECKING:
    from flotilla import Client


def resolve_url(connection: Connection, environment: Mapping[str, str] = os.environ) -> Connection:
    """Set the URL from FLOTILLA_URL of the driver, because tasks may have another environment."""
    if connection.url is not None:
        return connection
    return replace(connection, url=environment.get("FLOTILLA_URL") or None)


def connect(connection: Connection) -> "Client":
    """Make a client. Each process reads the token file itself, so the token is not sent to tasks."""
    from flotilla import Client  # noqa: PLC0415 - modules of pickled classes are imported in every task

    token = connection.token
    if connection.token_file is not None:
        try:
            token = Path(connection.token_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise OptionInvalid(f"tokenFile: {connection.token_file} cannot be read: {error.strerror}") from error
    return Client(connection.url, token=token, ca=connection.ca, route=connection.route)
