"""What people see."""

import io
from pathlib import Path

from flotilla.up.display import Display, ToTry, describe_waiting, try_lines, wants_color
from flotilla.up.options import Options
from flotilla.up.plan import make_plan, wanted_ports
from flotilla.up.supervision import Phase, Tone, Watched


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


class Broken(io.StringIO):
    """A stream whose reader is gone."""

    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        raise BrokenPipeError(text)


def test_colour_is_for_terminals_whose_owners_do_not_mind() -> None:
    assert wants_color(Terminal(), {}, no_color=False)
    assert not wants_color(Terminal(), {}, no_color=True)
    assert not wants_color(Terminal(), {"NO_COLOR": "1"}, no_color=False)
    assert not wants_color(Terminal(), {"TERM": "dumb"}, no_color=False)
    assert not wants_color(io.StringIO(), {}, no_color=False)


def test_the_table_says_what_runs_where() -> None:
    options = Options(brokers=1, readers=1, port=8080)
    ports = {name: 20_000 + at for at, name in enumerate(wanted_ports(options))}
    children = make_plan(options, Path("/d"), 8080, ports, "s")
    watched = {
        "broker-1": Watched("broker-1", Phase.READY, pid=11),
        "writer": Watched("writer", Phase.WAITING),
        "reader-1": Watched("reader-1", Phase.UNREADY, pid=13),
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


def test_a_line_has_the_time_and_colour_only_on_a_terminal() -> None:
    for color in (False, True):
        out = io.StringIO()
        Display(out, color=color, clock=lambda: 0.0).event("broker-2 was killed", Tone.BAD)
        assert ("\x1b[31mbroker-2 was killed\x1b[0m" in out.getvalue()) is color
        assert "broker-2 was killed" in out.getvalue()
        assert out.getvalue().count(":") == 2


def test_nobody_has_to_read() -> None:
    """`flotilla up | head -1` goes on when head is gone."""
    stream = Broken()
    display = Display(stream, color=False)
    display.event("one")
    display.event("two")
    assert stream.writes == 1


def test_who_is_waited_for_is_named_with_the_reason() -> None:
    watched = [
        Watched("a", Phase.READY, pid=1),
        Watched("b", Phase.STARTING, pid=2),
        Watched("c", Phase.STARTING, pid=3, reason="no broker is registered"),
    ]
    assert describe_waiting(watched) == "b (starting), c (no broker is registered)"


def test_there_are_three_lines_to_try() -> None:
    lines = try_lines(ToTry("http://127.0.0.1:9000"))
    assert len(lines) == 3
    assert all("http://127.0.0.1:9000/" in line for line in lines)
    assert "Authorization" not in "".join(lines)


def test_where_callers_need_a_token_the_first_line_makes_one_and_the_others_show_it() -> None:
    first, *rest = try_lines(ToTry("http://127.0.0.1:9000", Path("/data dir/secret")))
    assert first.startswith("export FLOTILLA_TOKEN=$(flotilla tokens create me --grant admin")
    assert "--secret-file '/data dir/secret'" in first
    assert len(rest) == 3
    assert all(line.count('-H "Authorization: Bearer $FLOTILLA_TOKEN"') == line.count("curl") for line in rest)
