"""Output of `flotilla up`."""

import io
from pathlib import Path

from flotilla.up.display import Display, QuickStart, describe_unready, quick_start_commands, wants_color
from flotilla.up.options import Options
from flotilla.up.plan import make_plan, port_names
from flotilla.up.supervision import Phase, ProcessState, Severity


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


class Broken(io.StringIO):
    """A stream whose reader has closed the pipe."""

    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        raise BrokenPipeError(text)


def test_color_needs_a_terminal_and_no_opt_out() -> None:
    assert wants_color(Terminal(), {}, no_color=False)
    assert not wants_color(Terminal(), {}, no_color=True)
    assert not wants_color(Terminal(), {"NO_COLOR": "1"}, no_color=False)
    assert not wants_color(Terminal(), {"TERM": "dumb"}, no_color=False)
    assert not wants_color(io.StringIO(), {}, no_color=False)


def test_table_shows_address_and_state_of_processes() -> None:
    options = Options(brokers=1, readers=1, port=8080)
    ports = {name: 20_000 + at for at, name in enumerate(port_names(options))}
    children = make_plan(options, Path("/d"), 8080, ports, "s")
    watched = {
        "broker-1": ProcessState("broker-1", Phase.READY, pid=11),
        "writer": ProcessState("writer", Phase.WAITING),
        "reader-1": ProcessState("reader-1", Phase.UNREADY, pid=13),
    }
    out = io.StringIO()
    Display(out, color=False).table(children, watched)
    assert (
        out.getvalue()
        == """
name      role    address                                    pid  state
broker-1  broker  http://127.0.0.1:20000                     11   ready
writer    writer  http://127.0.0.1:20002                     -    waiting
reader-1  reader  http://127.0.0.1:8080 and 127.0.0.1:20003  13   not ready

"""
    )


def test_event_has_time_and_color_only_on_a_terminal() -> None:
    for color in (False, True):
        out = io.StringIO()
        Display(out, color=color, clock=lambda: 0.0).event("broker-2 was killed", Severity.ERROR)
        assert ("\x1b[31mbroker-2 was killed\x1b[0m" in out.getvalue()) is color
        assert "broker-2 was killed" in out.getvalue()
        assert out.getvalue().count(":") == 2


def test_display_ignores_a_closed_pipe() -> None:
    """`flotilla up | head -1` continues after head has ended."""
    stream = Broken()
    display = Display(stream, color=False)
    display.event("one")
    display.event("two")
    assert stream.writes == 1


def test_unready_processes_are_named_with_reason() -> None:
    watched = [
        ProcessState("a", Phase.READY, pid=1),
        ProcessState("b", Phase.STARTING, pid=2),
        ProcessState("c", Phase.STARTING, pid=3, reason="no broker is registered"),
    ]
    assert describe_unready(watched) == "b (starting), c (no broker is registered)"


def test_quick_start_has_three_commands() -> None:
    lines = quick_start_commands(QuickStart("http://127.0.0.1:9000"))
    assert len(lines) == 3
    assert all("http://127.0.0.1:9000/" in line for line in lines)
    assert "Authorization" not in "".join(lines)


def test_quick_start_creates_a_token_if_auth_is_on() -> None:
    first, *rest = quick_start_commands(QuickStart("http://127.0.0.1:9000", Path("/data dir/secret")))
    assert first.startswith("export FLOTILLA_TOKEN=$(flotilla tokens create me --grant admin")
    assert "--secret-file '/data dir/secret'" in first
    assert len(rest) == 3
    assert all(line.count('-H "Authorization: Bearer $FLOTILLA_TOKEN"') == line.count("curl") for line in rest)
