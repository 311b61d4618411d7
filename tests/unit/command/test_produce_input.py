"""`flotilla produce`: the summary, and how it stops."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from flotilla.command.connection import ConnectionTarget
from flotilla.command.errors import CommandError
from flotilla.command.produce_input import InputSpec, ProduceSummary, run
from flotilla.testing import FakeFlotilla
from support.cluster import wait_until


@pytest.mark.parametrize(
    ("summary", "text"),
    [
        (ProduceSummary("t", 12_345, 1_300_000, 0.5, 0, 0, None), "12,345 records stored, 1.2MiB, 24,690 records/s"),
        (ProduceSummary("t", 1, 5, 1.0, 0, 0, None), "1 record stored, 5B, 1 records/s"),
        (ProduceSummary("t", 0, 0, 0.0, 0, 0, None), "0 records stored, 0B, 0 records/s"),
        (
            ProduceSummary("t", 10, 100, 1.0, 1, 2000, "why"),
            "10 records stored, 100B, 10 records/s; 1 record failed; 2,000 records with unknown outcome",
        ),
    ],
)
def test_summary_counts_stored_failed_and_unknown_records(summary: ProduceSummary, text: str) -> None:
    """Ok, failed and unknown are counted separately."""
    assert str(summary) == text


def test_summary_counts_bytes_of_stored_lines_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Failed lines do not count."""
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"%d:value\n" % number for number in range(100)))
    with FakeFlotilla() as fake:
        fake.client().topics.create("orders", partitions=4)
        fake.refuse("/v1/append", "too_large", times=1)
        with pytest.raises(CommandError):
            run(ConnectionTarget(fake.url), InputSpec(topic="orders", files=(file,), separator=b":"), as_json=True)
        stored = fake.records("orders")
    captured = json.loads(capsys.readouterr().out)
    assert 0 < len(stored) < 100
    assert (captured["records"], captured["failed"]) == (len(stored), 100 - len(stored))
    assert captured["bytes"] == sum(len(record.key or b"") + len(":value") for record in stored)


def test_interrupt_during_final_flush_sets_the_exit_code(tmp_path: Path) -> None:
    """All is stored, and the exit code still shows the interrupt."""
    file = tmp_path / "lines"
    file.write_bytes(b"one\n")
    with FakeFlotilla() as fake:
        fake.client().topics.create("orders", partitions=1)

        def interrupt() -> None:
            wait_until("the record", lambda: fake.records("orders"))
            os.kill(os.getpid(), signal.SIGINT)
            fake.heal()

        thread = threading.Thread(target=interrupt)
        thread.start()
        with fake.delay(30, "/v1/append"), pytest.raises(KeyboardInterrupt):
            run(ConnectionTarget(fake.url), InputSpec(topic="orders", files=(file,)), as_json=False)
        thread.join()
        assert [record.value for record in fake.records("orders")] == [b"one"]


def test_interrupt_leaves_a_named_pipe_without_writer(tmp_path: Path) -> None:
    pipe, left, in_time = tmp_path / "pipe", threading.Event(), []
    os.mkfifo(pipe)
    with FakeFlotilla() as fake:
        fake.client().topics.create("orders", partitions=1)
        before = signal.getsignal(signal.SIGINT)

        def interrupt() -> None:
            wait_until("it to be heeded", lambda: signal.getsignal(signal.SIGINT) is not before)
            os.kill(os.getpid(), signal.SIGINT)
            in_time.append(left.wait(10))
            if not left.is_set():
                os.close(os.open(pipe, os.O_WRONLY))  # so that it goes on, and ends

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            run(ConnectionTarget(fake.url), InputSpec(topic="orders", files=(pipe,)), as_json=False)
        left.set()
        thread.join()
    assert in_time == [True]


def test_produce_stops_at_a_failed_record_without_further_input(tmp_path: Path) -> None:
    """The failure is reported at once, not with the next line."""
    pipe, over, in_time = tmp_path / "pipe", threading.Event(), []
    os.mkfifo(pipe)
    with FakeFlotilla() as fake:
        fake.client().topics.create("orders", partitions=1)
        fake.refuse("/v1/append", "too_large", times=1)

        def write() -> None:
            with pipe.open("wb", buffering=0) as out:
                out.write(b"one\n")
                in_time.append(over.wait(10))  # and does not end before

        thread = threading.Thread(target=write)
        thread.start()
        with pytest.raises(CommandError, match="refused by the test"):
            run(ConnectionTarget(fake.url), InputSpec(topic="orders", files=(pipe,)), as_json=False)
        over.set()
        thread.join()
    assert in_time == [True]
