"""What `flotilla produce` tells of what became of lines, and how it ends."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from flotilla.command.asking import Server
from flotilla.command.errors import CommandError
from flotilla.command.feeding import Account, Feed, run
from flotilla.testing import FakeFlotilla
from support.cluster import wait_until


@pytest.mark.parametrize(
    ("account", "text"),
    [
        (Account("t", 12_345, 1_300_000, 0.5, 0, 0, None), "12,345 records, 1.2MiB, 24,690 records/s"),
        (Account("t", 1, 5, 1.0, 0, 0, None), "1 record, 5B, 1 records/s"),
        (Account("t", 0, 0, 0.0, 0, 0, None), "0 records, 0B, 0 records/s"),
        (
            Account("t", 10, 100, 1.0, 1, 2000, "why"),
            "10 records, 100B, 10 records/s; 1 record not stored; 2,000 records perhaps stored",
        ),
    ],
)
def test_what_became_of_all_lines_is_told_in_one(account: Account, text: str) -> None:
    """Ok, failed and unknown are told apart."""
    assert str(account) == text


def test_bytes_are_those_of_lines_that_are_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is told of lines that were not stored is not mixed with what is told of others."""
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"%d:value\n" % number for number in range(100)))
    with FakeFlotilla() as fake:
        fake.client().topics.create("orders", partitions=4)
        fake.refuse("/v1/append", "too_large", times=1)
        with pytest.raises(CommandError):
            run(Server(fake.url), Feed(topic="orders", files=(file,), separator=b":"), as_json=True)
        stored = fake.records("orders")
    told = json.loads(capsys.readouterr().out)
    assert 0 < len(stored) < 100
    assert (told["records"], told["failed"]) == (len(stored), 100 - len(stored))
    assert told["bytes"] == sum(len(record.key or b"") + len(":value") for record in stored)


def test_who_interrupts_while_the_last_answers_are_waited_for_is_heard(tmp_path: Path) -> None:
    """All is sent and stored, and still the exit code says that somebody wanted it to end."""
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
            run(Server(fake.url), Feed(topic="orders", files=(file,)), as_json=False)
        thread.join()
        assert [record.value for record in fake.records("orders")] == [b"one"]


def test_a_named_pipe_to_which_nobody_writes_is_left_at_the_first_ctrl_c(tmp_path: Path) -> None:
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
            run(Server(fake.url), Feed(topic="orders", files=(pipe,)), as_json=False)
        left.set()
        thread.join()
    assert in_time == [True]


def test_it_ends_at_a_record_that_is_not_stored_though_nothing_more_is_to_be_read(tmp_path: Path) -> None:
    """Whoever types a line, or has a quiet log followed, learns of it now and not with the next line."""
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
        with pytest.raises(CommandError, match="a test wants it so"):
            run(Server(fake.url), Feed(topic="orders", files=(pipe,)), as_json=False)
        over.set()
        thread.join()
    assert in_time == [True]
