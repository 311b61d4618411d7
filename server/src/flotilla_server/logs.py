"""Logs: text on a terminal, one JSON object per line otherwise.

`FLOTILLA_LOG_FORMAT` (human, json or auto) overrides this. Lines that are logged during a request have the request's
id.
"""

import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from flotilla_server import request_ids
from flotilla_server.settings import SettingsInvalid

LEVELS = ("debug", "info", "warning", "error")
_VARIABLE = "FLOTILLA_LOG_FORMAT"
_FORMATS = ("human", "json", "auto")

request_id = request_ids.current


class HumanFormatter(logging.Formatter):
    """One line per event, followed by the traceback if any."""

    def __init__(self, process_name: str) -> None:
        super().__init__(f"%(asctime)s %(levelname)s {process_name.replace('%', '%%')} %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging names it
        """Format the line, with the request id at its end."""
        line = super().formatMessage(record)
        found = request_id()
        return line if found is None else f"{line} [request {found}]"


class JsonFormatter(logging.Formatter):
    """One JSON object per event."""

    def __init__(self, process_name: str) -> None:
        super().__init__()
        self._process_name = process_name

    def format(self, record: logging.LogRecord) -> str:
        """Format the object."""
        event: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": self._process_name,
            "logger": record.name,
            "message": record.getMessage(),
        }
        found = request_id()
        if found is not None:
            event["request_id"] = found
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(event).decode()


def make_formatter(process_name: str, stream: TextIO, environment: Mapping[str, str]) -> HumanFormatter | JsonFormatter:
    """Choose the format by the variable, or by the stream; raises SettingsInvalid."""
    wanted = environment.get(_VARIABLE, "auto")
    if wanted not in _FORMATS:
        raise SettingsInvalid(f"{_VARIABLE} must be human, json or auto, not {wanted!r}")
    human = wanted == "human" or (wanted == "auto" and stream.isatty())
    return HumanFormatter(process_name) if human else JsonFormatter(process_name)


def set_up(level: str, process_name: str) -> None:
    """Configure logging to stderr; raises SettingsInvalid. `level` is one of LEVELS."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(make_formatter(process_name, sys.stderr, os.environ))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
