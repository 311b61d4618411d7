"""A client for Spark's processes."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_flotilla.options import OptionInvalid, Where

if TYPE_CHECKING:
    from flotilla import Client


def locate(where: Where, environment: Mapping[str, str] = os.environ) -> Where:
    """Find out on the driver where the system is, so that tasks need not have its environment."""
    return where if where.url is not None else replace(where, url=environment.get("FLOTILLA_URL") or None)


def connect(where: Where) -> "Client":
    """Make a client. A token in a file is read where it is used, and so is not sent to tasks."""
    from flotilla import Client  # noqa: PLC0415 - what is pickled does not bring its modules along

    token = where.token
    if where.token_file is not None:
        try:
            token = Path(where.token_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise OptionInvalid(f"tokenFile: {where.token_file} cannot be read: {error.strerror}") from error
    return Client(where.url, token=token, ca=where.ca, route=where.route)
