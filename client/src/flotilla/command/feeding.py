"""The work of `flotilla produce`: reads lines, sends them, and accounts for each.

Whatever is there is read and sent at once, up to a block: a large file goes in large calls, and what somebody types
goes line by line. It ends at the first line that is refused and at the first record that is not stored: what came
before was sent, so that one can go on from there. However it ends, what was taken is waited for, and counted.
"""

import os
import select
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flotilla.client.deliveries import Deliveries, Failure
from flotilla.client.errors import RecordInvalid
from flotilla.client.producer import Producer, ProducerStats
from flotilla.command import asking
from flotilla.command.errors import CommandError, InputInvalid
from flotilla.command.lines import Cutter, LineRefused, Rows, split_keys
from flotilla.command.piping import Ending, endable, find_topic
from flotilla.command.progress import Note, progress
from flotilla.command.speaking import say_json, tell
from flotilla.command.units import write_rough_size
from flotilla.records import Headers

STDIN = Path("-")
_STDIN_FD = 0  # `sys.stdin` is None where it is closed
_BLOCK_BYTES = 1 << 18
_LOOK_S = 0.5  # how often one looks whether all is well, while nothing is to be read


@dataclass(frozen=True, kw_only=True)
class Feed:
    """What is read, and what becomes of a line."""

    topic: str
    files: tuple[Path, ...] = (STDIN,)
    separator: bytes | None = None
    is_key_optional: bool = False
    headers: Headers = ()
    partition: int | None = None
    compression: str = "auto"
    delivery_s: float = 60.0


@dataclass(frozen=True)
class Account:
    """What became of it all."""

    topic: str
    records: int
    bytes: int
    seconds: float
    failed: int
    unknown: int
    error: str | None

    @classmethod
    def of(cls, sender: "Sender", stats: ProducerStats, seconds: float, stopped: BaseException | None) -> "Account":
        """Sum up."""
        error = stopped if isinstance(stopped, Exception) else sender.error
        text = None if error is None else str(error)
        return cls(sender.topic, stats.acknowledged, sender.bytes, seconds, stats.failed, stats.unknown, text)

    def __str__(self) -> str:
        rate = self.records / max(self.seconds, 1e-9)
        said = f"{_count(self.records)}, {write_rough_size(self.bytes)}, {rate:,.0f} records/s"
        said += f"; {_count(self.failed)} not stored" if self.failed else ""
        return said + (f"; {_count(self.unknown)} perhaps stored" if self.unknown else "")


class Sender:
    """Sends lines, and remembers the first that was not stored."""

    def __init__(self, producer: Producer, feed: Feed, ending: Ending) -> None:
        self.topic = feed.topic
        self.bytes = 0  # of lines that are stored, as far as that is known
        self.error: Failure | None = None
        self._producer = producer
        self._feed = feed
        self._ending = ending
        self._under_way: deque[tuple[Deliveries, list[int]]] = deque()  # with how long each line is

    def send(self, lines: Sequence[bytes]) -> None:
        """Send lines. Raises LineRefused, and then those before it are sent."""
        if not lines:
            return
        try:
            self._take(lines)
        except (LineRefused, RecordInvalid):  # nothing of this call was taken
            self._take_each(lines)
        self.look()

    def look(self) -> bool:
        """Tell whether all is well, as far as outcomes are known by now."""
        while self._under_way and self._under_way[0][0].done():
            self._note(*self._under_way.popleft())
        return self.error is None

    def _take(self, lines: Sequence[bytes]) -> None:
        rows, headers = self._rows(lines), self._feed.headers
        taken = self._producer.send_many(
            self.topic,
            rows.values,
            keys=rows.keys,
            headers=[headers] * len(lines) if headers else None,
            partition=self._feed.partition,
        )
        self._under_way.append((taken, list(map(len, lines))))

    def _rows(self, lines: Sequence[bytes]) -> Rows:
        if self._feed.separator is None:
            return Rows(lines, None)
        return split_keys(lines, self._feed.separator, is_optional=self._feed.is_key_optional)

    def _take_each(self, lines: Sequence[bytes]) -> None:
        """Find the line that breaks a rule, and send those before it."""
        for at, line in enumerate(lines):
            try:
                self._take([line])
            except (LineRefused, RecordInvalid) as error:
                raise LineRefused(at, str(error)) from error

    def _note(self, deliveries: Deliveries, sizes: list[int]) -> None:
        failure = deliveries.exception()
        self.error = self.error or failure
        if failure is not None:  # of some records, perhaps not of all
            sizes = [size for size, one in zip(sizes, deliveries, strict=True) if one.exception() is None]
        self.bytes += sum(sizes)

    def finish(self) -> None:
        """Wait until the outcome of everything is known. Who asks for the end once more gives up on the rest."""
        try:
            waiting = self._producer.stats.waiting
            if self._ending.asked and waiting:
                tell(f"waiting for {_count(waiting)} under way; to ask once more gives up on them")
            self._producer.flush(0 if self._ending.asked > 1 else None)
        except (KeyboardInterrupt, SystemExit, TimeoutError):
            self._producer.close(timeout_s=0)
        while self._under_way:
            self._note(*self._under_way.popleft())


def run(server: asking.Server, feed: Feed, *, as_json: bool) -> None:
    """Produce, and tell what became of it; raises CommandError, KeyboardInterrupt, SystemExit."""
    _check(server, feed)
    with asking.explained(server), server.open() as client, endable() as ending:
        producer = client.producer(compression=feed.compression, delivery_s=feed.delivery_s)
        sender = Sender(producer, feed, ending)
        began, stopped = time.perf_counter(), None
        try:
            _feed_all(sender, feed.files, ending)
        except BaseException as error:  # noqa: BLE001 - raised again when it is known what became of all
            stopped = error
        sender.finish()
        account = Account.of(sender, producer.stats, time.perf_counter() - began, stopped)
        if as_json:
            say_json(account)
        else:
            tell(str(account))
        if isinstance(stopped, Exception):
            raise stopped
        if ending.asked and account.error is not None:
            tell(account.error)
        ending.end()
    if account.error is not None:
        raise CommandError(account.error)


def _check(server: asking.Server, feed: Feed) -> None:
    topic = find_topic(server, feed.topic)
    count = len(topic.partitions)
    if feed.partition is not None and feed.partition >= count:
        raise InputInvalid(f"topic '{feed.topic}' has {count} partitions, 0 to {count - 1}, and no {feed.partition}")


def _feed_all(sender: Sender, files: Sequence[Path], ending: Ending) -> None:
    is_typed = STDIN in files and os.isatty(_STDIN_FD)  # a picture of progress would get in the way of typing
    with progress(f"to {sender.topic}", _measure(files), is_wanted=not is_typed) as note:
        for path in files:
            if sender.error is not None:
                return
            with _opened(path, ending) as fd:
                _feed_one(
                    sender, _blocks(fd, ending, sender.look), "standard input" if path == STDIN else str(path), note
                )


def _blocks(fd: int, ending: Ending, is_well: Callable[[], bool]) -> Iterator[bytes]:
    """Read what is there, up to a block, and wait if nothing is, as long as all is well.

    Raises OSError, KeyboardInterrupt, SystemExit.
    """
    block: bytes | None = None
    while block != b"":
        with ending.at_once():
            is_ready, _, _ = select.select([fd], [], [], _LOOK_S)
            block = os.read(fd, _BLOCK_BYTES) if is_ready else None
        if block is not None:
            yield block
        elif not is_well():
            return


def _feed_one(sender: Sender, blocks: Iterator[bytes], name: str, note: Note) -> None:
    cutter, before = Cutter(), 0
    try:
        for block in blocks:
            lines = cutter.cut(block) if block else cutter.end()
            sender.send(lines)
            before += len(lines)
            note(len(lines), len(block))
            if sender.error is not None:
                return
    except LineRefused as error:
        text = f"line {before + error.at + 1} of {name} is refused: {error}. The lines before it were sent"
        raise CommandError(text) from error
    except OSError as error:
        raise CommandError(f"{name} cannot be read behind line {before}: {error.strerror}") from error


def _measure(files: Sequence[Path]) -> int | None:
    """Tell how many bytes there are to be read; None if nobody can know."""
    try:
        found = [os.fstat(_STDIN_FD) if path == STDIN else path.stat() for path in files]
    except OSError:
        return None
    return sum(one.st_size for one in found) if all(stat.S_ISREG(one.st_mode) for one in found) else None


@contextmanager
def _opened(path: Path, ending: Ending) -> Iterator[int]:
    if path == STDIN:
        yield _STDIN_FD
        return
    try:
        with ending.at_once():  # a named pipe is waited for until somebody writes to it
            fd = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise InputInvalid(f"{path} cannot be read: {error.strerror}") from error
    try:
        yield fd
    finally:
        os.close(fd)


def _count(records: int) -> str:
    return f"{records:,} record{'' if records == 1 else 's'}"
