"""Log lines: for people on a terminal, as JSON otherwise, with the id of the request that they are about."""

import io
import json
import logging
import sys
from contextvars import copy_context

import pytest

from flotilla.serving import request_ids
from flotilla.serving.logs import HumanFormatter, JsonFormatter, make_formatter
from flotilla.serving.settings import SettingsInvalid


class Terminal(io.StringIO):
    """Says that somebody looks at it."""

    def isatty(self) -> bool:
        return True


def record(text: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    raised = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("a.logger", logging.WARNING, "file", 1, text, arguments, raised)


def test_a_line_of_json_has_everything() -> None:
    error = ValueError("what went wrong")
    line = JsonFormatter("broker").format(record("it is %s\nand more", "so", error=error))
    assert "\n" not in line
    found = json.loads(line)
    assert found["time"].endswith("+00:00")
    assert (found["level"], found["process"], found["logger"]) == ("warning", "broker", "a.logger")
    assert found["message"] == "it is so\nand more"
    assert "ValueError: what went wrong" in found["exception"]
    assert "request_id" not in found


def test_a_line_about_a_request_has_its_id() -> None:
    def inside() -> None:
        made = request_ids.made()
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
def test_the_format_follows_the_stream_unless_it_is_given(
    stream: io.StringIO, environment: dict[str, str], kind: type
) -> None:
    assert type(make_formatter("x", stream, environment)) is kind


def test_an_unknown_format_is_a_wrong_setting() -> None:
    with pytest.raises(SettingsInvalid, match="FLOTILLA_LOG_FORMAT must be human, json or auto"):
        make_formatter("x", sys.stderr, {"FLOTILLA_LOG_FORMAT": "xml"})
