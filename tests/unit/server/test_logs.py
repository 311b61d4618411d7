"""Log lines: human-readable on a terminal, else JSON, with the request id."""

import io
import json
import logging
import sys
from contextvars import copy_context

import pytest

from flotilla_server import request_ids
from flotilla_server.logs import HumanFormatter, JsonFormatter, make_formatter
from flotilla_server.settings import SettingsInvalid


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def record(text: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    raised = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("a.logger", logging.WARNING, "file", 1, text, arguments, raised)


def test_json_line_has_all_fields() -> None:
    error = ValueError("what went wrong")
    line = JsonFormatter("broker").format(record("it is %s\nand more", "so", error=error))
    assert "\n" not in line
    found = json.loads(line)
    assert found["time"].endswith("+00:00")
    assert (found["level"], found["process"], found["logger"]) == ("warning", "broker", "a.logger")
    assert found["message"] == "it is so\nand more"
    assert "ValueError: what went wrong" in found["exception"]
    assert "request_id" not in found


def test_line_of_a_request_has_its_id() -> None:
    def inside() -> None:
        made = request_ids.generate()
        assert json.loads(JsonFormatter("x").format(record("y")))["request_id"] == made
        assert HumanFormatter("x").format(record("y")).endswith(f"WARNING x a.logger: y [request {made}]")

    copy_context().run(inside)
    assert HumanFormatter("x").format(record("y")).endswith("a.logger: y")


@pytest.mark.parametrize(
    ("stream", "environment", "kind"),
    [
        (Terminal(), {}, HumanFormatter),
        (io.StringIO(), {}, JsonFormatter),
        (io.StringIO(), {"FLOTILLA_LOG_FORMAT": "human"}, HumanFormatter),
        (Terminal(), {"FLOTILLA_LOG_FORMAT": "json"}, JsonFormatter),
        (Terminal(), {"FLOTILLA_LOG_FORMAT": "auto"}, HumanFormatter),
    ],
)
def test_format_follows_the_stream_unless_it_is_set(
    stream: io.StringIO, environment: dict[str, str], kind: type
) -> None:
    assert type(make_formatter("x", stream, environment)) is kind


def test_unknown_format_is_an_invalid_setting() -> None:
    with pytest.raises(SettingsInvalid, match="FLOTILLA_LOG_FORMAT must be human, json or auto"):
        make_formatter("x", sys.stderr, {"FLOTILLA_LOG_FORMAT": "xml"})
