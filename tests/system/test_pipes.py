"""`flotilla produce`, `consume` and `bench` on a real system: pipes, files, terminals, signals, hanging servers."""

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from flotilla import Client
from support.cluster import wait_until
from support.fleet import Fleet

LIMIT_S = 60


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet")), readers=1) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def client(fleet: Fleet) -> Iterator[Client]:
    with Client(fleet.url) as client:
        yield client


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "flotilla.command", *arguments]


def environment(fleet: Fleet) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLOTILLA_")}
    # Without buffers, as containers often have it, an output may take a part of what is written.
    return {**kept, "FLOTILLA_URL": fleet.url, "TERM": "xterm", "PYTHONUNBUFFERED": "1"}


def run(
    fleet: Fleet, *arguments: str, stdin: bytes = b"", code: int = 0, timeout_s: float = LIMIT_S
) -> subprocess.CompletedProcess[bytes]:
    """Run a command that must exit with `code`."""
    done = subprocess.run(
        command(*arguments),
        env=environment(fleet),
        input=stdin,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == code, (done.stdout[-1000:], done.stderr.decode()[-2000:])
    return done


@contextmanager
def started(fleet: Fleet, *arguments: str, stderr: int = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command, and kill it at the end."""
    process = subprocess.Popen(
        command(*arguments), env=environment(fleet), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
    )
    # A reader of a process that hangs gets the end of its output, and a failed assertion.
    limit = threading.Timer(LIMIT_S, process.kill)
    limit.start()
    with process:
        try:
            yield process
        finally:
            limit.cancel()
            process.kill()


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes, str]:
    """Wait for the end; return exit code, standard output and standard error."""
    out, said = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, (said or b"").decode()


def type_in(process: subprocess.Popen[bytes], text: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def stored(client: Client, topic: str) -> list[bytes]:
    """Read all values of a topic."""
    with client.consumer(topic) as consumer:
        return [record.value for record in consumer.records(until="end")]


def everything(fleet: Fleet, *arguments: str) -> bytes:
    return run(fleet, "consume", *arguments, "--from-beginning", "--until-end").stdout


# -- round trips ------------------------------------------------------------------------------------------------------


def test_produce_and_consume_keep_every_byte(fleet: Fleet, tmp_path: Path) -> None:
    """Lines are records with any bytes; several files are sent in order, and no line is lost."""
    fleet.create("bytes", partitions=1)
    lines = [b"one", b"", b"\xff\xfe\x00", b"carriage\r", *(b"%d" % number * 20 for number in range(20_000))]
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"\n".join(lines))  # without a newline at its end
    second.write_bytes(b"last\n")
    done = run(fleet, "produce", "bytes", str(first), "-", str(second), stdin=b"typed\n")
    assert re.fullmatch(r"20,006 records stored, [\d.]+MiB, [\d,]+ records/s\n", done.stderr.decode())
    assert done.stdout == b""
    assert everything(fleet, "bytes") == b"\n".join([*lines, b"typed", b"last", b""])


def test_keys_headers_and_partitions_are_kept(fleet: Fleet) -> None:
    fleet.create("keyed", partitions=3)
    keyed = ["produce", "keyed", "--key-separator", "::", "--key-optional", "--header", "a=1", "--header", "b=x=y"]
    run(fleet, *keyed, "--partition", "1", "--compression", "zstd", stdin=b"k::v::w\nnone\n")
    shape = r"%t %p %o %k %v %h %%\n"
    assert (
        everything(fleet, "keyed", "--format", shape) == b"keyed 1 0 k v::w a=1,b=x=y %\nkeyed 1 1  none a=1,b=x=y %\n"
    )
    assert everything(fleet, "keyed", "--key-separator", "=") == b"k=v::w\n=none\n"
    first, second = map(json.loads, everything(fleet, "keyed", "--json").splitlines())
    assert (first["key"], first["value"], first["headers"][1]) == ("k", "v::w", {"name": "b", "value": "x=y"})
    assert "key" not in second
    text = run(fleet, "produce", "keyed", "--partition", "3", code=2).stderr
    assert text == b"flotilla produce: topic 'keyed' has no partition 3: the last one is 2\n"


def test_same_key_goes_to_the_same_partition(fleet: Fleet) -> None:
    fleet.create("sorted", partitions=4)
    lines = [b"%d:%d" % (number % 10, number) for number in range(1000)]
    run(fleet, "produce", "sorted", "--key-separator", ":", stdin=b"\n".join(lines))
    found: dict[bytes, list[tuple[bytes, int]]] = {}
    for line in everything(fleet, "sorted", "--format", r"%k %p %v\n").splitlines():
        key, partition, value = line.split()
        found.setdefault(key, []).append((partition, int(value)))
    assert len(found) == 10
    for values in found.values():
        assert len({partition for partition, _ in values}) == 1
        assert [number for _, number in values] == sorted(number for _, number in values)


def test_consume_starts_and_stops_as_requested(fleet: Fleet) -> None:
    fleet.create("parts", partitions=2)
    for partition in ("0", "1"):
        run(fleet, "produce", "parts", "--partition", partition, stdin=b"a\nb\nc\nd\n")
    at = ["consume", "parts", "--format", r"%p%v ", "--until-end"]
    assert run(fleet, *at, "--partition", "1", "--offset", "2").stdout == b"1c 1d "
    assert run(fleet, *at, "--partition", "1", "--from", "-1h", "--max", "3").stdout == b"1a 1b 1c "
    assert run(fleet, *at, "--from", "2999-01-01").stdout == b""
    assert run(fleet, *at).stdout == b""  # from now on, and until now
    assert run(fleet, "consume", "parts", "--timeout", "1s").stdout == b""
    assert len(run(fleet, *at, "--from-beginning").stdout.split()) == 8
    refused = run(fleet, *at, "--partition", "1", "--offset", "5", code=2).stderr
    assert refused == b"flotilla consume: --offset 5 is out of range: partition 1 of 'parts' has offsets 0 to 4\n"


# -- errors -----------------------------------------------------------------------------------------------------------


def test_produce_stops_at_a_line_without_key(fleet: Fleet, client: Client, tmp_path: Path) -> None:
    fleet.create("unkeyed", partitions=1)
    file = tmp_path / "lines"
    file.write_bytes(b"1:a\n2:b\nbroken\n3:c\n")
    done = run(fleet, "produce", "unkeyed", str(file), "--key-separator", ":", "--json", code=1)
    assert f"line 3 of {file} is invalid: no separator ':'" in done.stderr.decode()
    assert {name: json.loads(done.stdout)[name] for name in ("topic", "records", "failed", "unknown", "error")} == {
        "topic": "unkeyed",
        "records": 2,
        "failed": 0,
        "unknown": 0,
        "error": f"line 3 of {file} is invalid: no separator ':' after the key. Earlier lines were sent",
    }
    assert stored(client, "unkeyed") == [b"a", b"b"]


def test_produce_stops_at_a_line_that_is_too_long(fleet: Fleet, client: Client) -> None:
    fleet.create("short", partitions=1)
    text = b"one\ntwo\n" + os.urandom(9 << 20).replace(b"\n", b"x") + b"\nthree\n"
    done = run(fleet, "produce", "short", stdin=text, code=1)
    assert "line 3 of standard input is invalid: the record is too large" in done.stderr.decode()
    assert stored(client, "short") == [b"one", b"two"]


@pytest.mark.parametrize("task", [["produce"], ["consume"], ["bench", "produce"]])
def test_missing_topic_error_explains_how_to_create_it(fleet: Fleet, task: Sequence[str]) -> None:
    said = run(fleet, *task, "misspelt", code=1).stderr.decode()
    advice = "create it with `flotilla topics create misspelt`"
    assert said == f"flotilla {task[0]}: topic 'misspelt' does not exist; {advice}\n"
    said = run(fleet, *task, "two words", code=1).stderr.decode()
    assert said.startswith(f"flotilla {task[0]}: topic 'two words' does not exist; name must match [A-Za-z0-9]")


# -- streaming --------------------------------------------------------------------------------------------------------


def test_slow_input_is_sent_line_by_line_and_ctrl_c_stops(fleet: Fleet) -> None:
    """Neither side delays slow input."""
    fleet.create("slow", partitions=2)
    with started(fleet, "consume", "slow") as tail, started(fleet, "produce", "slow") as source:
        os.set_blocking(tail.stdout.fileno(), False)  # type: ignore[union-attr]  # it is a pipe
        count = 0

        def seen() -> bytes:
            nonlocal count
            count += 1
            type_in(source, b"%d\n" % count)  # again and again, since the tail begins when it is ready
            return read_line(tail)

        assert 1 <= int(wait_until("the first line", seen)) <= count
        os.set_blocking(tail.stdout.fileno(), True)  # type: ignore[union-attr]  # it is a pipe
        for number in range(3):
            type_in(source, b"line %d\nmore\n" % number)
            while read_line(tail) != b"line %d\n" % number:
                pass
        for process in (source, tail):
            process.send_signal(signal.SIGINT)
        code, _, said = ended(source)
        assert (code, said.splitlines()[-1].split(",")[0]) == (130, f"{count + 6} records stored")
        code, _, said = ended(tail)
        assert (code, said) == (130, "")


def test_produce_stores_accepted_lines_on_sigterm(fleet: Fleet, client: Client) -> None:
    fleet.create("ending", partitions=1)
    with started(fleet, "produce", "ending") as source:
        type_in(source, b"".join(b"%d\n" % number for number in range(1000)) + b"without an end")
        wait_until("the lines to be stored", lambda: len(stored(client, "ending")) == 1000)
        source.send_signal(signal.SIGTERM)
        code, _, said = ended(source)
    assert (code, said.split(",")[:2]) == (143, ["1", "000 records stored"])
    assert len(stored(client, "ending")) == 1000


def test_consume_ends_silently_on_a_closed_pipe(fleet: Fleet) -> None:
    fleet.create("long", partitions=1)
    run(fleet, "produce", "long", stdin=b"0123456789\n" * 100_000)
    with started(fleet, "consume", "long", "--from-beginning") as tail:
        assert read_line(tail) == b"0123456789\n"
        tail.stdout.close()  # type: ignore[union-attr]  # it is a pipe
        assert tail.stderr is not None
        assert (tail.stderr.read(), tail.wait(LIMIT_S)) == (b"", 141)


def test_typed_lines_are_sent_at_once_and_files_show_progress(fleet: Fleet, client: Client, tmp_path: Path) -> None:
    fleet.create("typed", partitions=1)
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            command("produce", "typed"), env=environment(fleet), stdin=theirs, stderr=theirs
        ) as typist:
            os.write(ours, b"first\n")
            wait_until("the line to be stored", lambda: stored(client, "typed") == [b"first"])
            os.write(ours, b"second\n\x04")  # and the end of the file
            assert typist.wait(LIMIT_S) == 0
        assert os.read(ours, 10_000).decode().split("\r\n")[2].startswith("2 records stored, 11B, ")
        file = tmp_path / "lines"
        file.write_bytes(b"x\n" * 1000)
        subprocess.run(command("produce", "typed", str(file)), env=environment(fleet), stderr=theirs, check=True)
        shown = os.read(ours, 100_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "1,000 records, " in shown
    assert "2.0/2.0 KiB" in shown or "2,000/2,000 bytes" in shown, shown


# -- groups -----------------------------------------------------------------------------------------------------------


def test_group_resumes_after_the_printed_records(fleet: Fleet, client: Client) -> None:
    """Printed records are committed; the next member resumes there, without loss or duplicates."""
    fleet.create("shared", partitions=2)
    run(fleet, "produce", "shared", stdin=b"".join(b"%d\n" % number for number in range(1000)))
    first = run(fleet, "consume", "shared", "--group", "g", "--from-beginning", "--max", "123").stdout.split()
    assert len(first) == 123
    assert client.groups.describe("g").lag == 877
    rest = run(fleet, "consume", "shared", "--group", "g", "--timeout", "2s").stdout.split()
    assert sorted(map(int, first + rest)) == list(range(1000))
    assert client.groups.describe("g").lag == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_member_leaves_its_group(fleet: Fleet, client: Client, number: signal.Signals, code: int) -> None:
    topic = f"left-by-{number.name.lower()}"
    fleet.create(topic, partitions=1)
    run(fleet, "produce", topic, stdin=b"one\n")
    with started(fleet, "consume", topic, "--group", topic, "--from-beginning") as member:
        assert read_line(member) == b"one\n"
        assert len(client.groups.describe(topic).members) == 1
        member.send_signal(number)
        assert ended(member) == (code, b"", "")
    group = client.groups.describe(topic)
    assert (len(group.members), group.lag) == (0, 0)


# -- hanging servers --------------------------------------------------------------------------------------------------


@contextmanager
def hanging(fleet: Fleet) -> Iterator[None]:
    for broker in fleet.brokers:
        broker.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for broker in fleet.brokers:
            broker.signal(signal.SIGCONT)


def type_and_wait(process: subprocess.Popen[bytes], text: bytes) -> None:
    """Write to standard input, and wait until it was read."""
    type_in(process, text)
    pipe = process.stdin
    wait_until("it to be read", lambda: fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)) == bytes(4))  # type: ignore[arg-type]  # it is a pipe


def test_records_not_stored_in_time_are_counted(fleet: Fleet, client: Client) -> None:
    """Each record is counted as stored, failed or unknown."""
    fleet.create("stuck", partitions=1)
    with started(fleet, "produce", "stuck", "--timeout", "1s", "--json") as source:
        type_in(source, b"well\n")
        wait_until("the line to be stored", lambda: stored(client, "stuck") == [b"well"])
        with hanging(fleet):
            type_in(source, b"lost\nlost, too\n")
            code, out, said = ended(source)
    found = json.loads(out)
    assert (code, found["records"], found["failed"] + found["unknown"]) == (1, 1, 2), (found, said)
    assert said == f"flotilla produce: {found['error']}\n"


def test_second_interrupt_does_not_wait_for_servers(fleet: Fleet, client: Client) -> None:
    """The first interrupt waits for records in flight, the second gives up; both are reported."""
    fleet.create("hanging", partitions=1)
    with started(fleet, "produce", "hanging") as source:
        type_in(source, b"well\n")
        wait_until("the line to be stored", lambda: stored(client, "hanging") == [b"well"])
        with hanging(fleet):
            type_and_wait(source, b"lost\n")
            type_and_wait(source, b"or taken\n")  # when it is read, the one before was accepted
            source.send_signal(signal.SIGINT)
            assert source.stderr is not None
            assert re.match(rb"waiting for [12] records? in flight", source.stderr.readline())
            source.send_signal(signal.SIGINT)
            code, _, said = ended(source)
    assert code == 130
    assert re.match(r"1 record stored, \d+B, [\d,]+ records/s; [12] records? (failed|with unknown outcome)", said)


# -- bench ------------------------------------------------------------------------------------------------------------


def test_bench_deletes_its_temporary_topic(fleet: Fleet, client: Client) -> None:
    before = [topic.name for topic in client.topics.list()]
    done = run(fleet, "bench", "--records", "2000", "--seconds", "5s", "--json", "--partitions", "2", "--rate", "80")
    produced, consumed, travelled = json.loads(done.stdout)["measured"]
    assert (produced["records"], travelled["records"]) == (2000, 400)
    assert consumed["records"] in (2000, 2001), (
        "it ends after the batch that reaches the limit; a first record is not counted"
    )
    assert produced["latency"]["count"] == 2
    assert travelled["latency"]["count"] == sum(bucket["count"] for bucket in travelled["histogram"]) == 400
    assert [topic.name for topic in client.topics.list()] == before


def test_bench_keeps_a_given_topic_and_deletes_its_own_on_interrupt(fleet: Fleet, client: Client) -> None:
    fleet.create("measured", partitions=1)
    out = run(fleet, "bench", "produce", "measured", "--records", "3000", "--calls", "each").stdout.decode()
    assert re.match(r" +records  seconds .*\nproduce +3,000 ", out)
    assert len(stored(client, "measured")) == 3001
    before = {topic.name for topic in client.topics.list()}
    with started(fleet, "bench", "end-to-end", "--seconds", "60s") as bench:
        own = wait_until("its topic", lambda: {topic.name for topic in client.topics.list()} - before).pop()
        wait_until("records", lambda: sum(one.records or 0 for one in client.topics.partitions(own)))
        bench.send_signal(signal.SIGINT)
        assert ended(bench) == (130, b"", "")
    assert {topic.name for topic in client.topics.list()} == before
