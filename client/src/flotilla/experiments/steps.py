"""Single steps of an experiment: one producer, or one consumer.

The producer sends the lines of a step concurrently. The next step starts when all of them are acknowledged. It stops at
the first failure, because the order after an unknown outcome proves nothing.

The consumer writes messages that arrive after it has subscribed. On a stop request, or after a time without
messages, it reads up to the current end and stops. The file is flushed whenever no more messages are available.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from flotilla import Client, Consumer, ConsumerRecord, FlotillaError, Producer
from flotilla.experiments.consumer_logs import Origin, format_header, format_row
from flotilla.experiments.errors import FilesUnusable, StepFailed
from flotilla.experiments.producer_logs import Line, ProducerLog, producer_file

_POLL_S = 0.2  # interval to check for a stop request
_PROGRESS_RECORDS = 100
_REST_S = 60.0  # limit for existing messages, for example during an election


def produce(client: Client, log: ProducerLog, prefix: str, report: Callable[[int], object]) -> int:
    """Send all messages, report the acknowledged number, and return it. Raises StepFailed."""
    done = 0
    with client.producer() as producer:
        for step in log.steps():
            _send_step(producer, log.producer, step, prefix)
            done += len(step)
            report(done)
    return done


def _send_step(producer: Producer, id_: int, step: tuple[Line, ...], prefix: str) -> None:
    line = step[0]
    deliveries = []
    try:
        for line in step:
            headers = Origin.for_headers(line)
            deliveries.append(producer.send(prefix + line.topic, line.message.encode(), headers=headers, partition=0))
        for at, delivery in enumerate(deliveries):
            line = step[at]
            delivery.result()
    except FlotillaError as error:
        raise StepFailed(f"{producer_file(id_)} line {line.number}: {error}") from error


class ConsumerStep:
    """A consumer and its file. `end` is thread-safe."""

    def __init__(
        self,
        consumer: Consumer,
        file: TextIO,
        id_: int,
        topics: Sequence[str],
        *,
        prefix: str,
        report: Callable[[int], object],
    ) -> None:
        self._consumer = consumer
        self._file = file
        self._prefix = prefix
        self._report = report
        self._is_over = threading.Event()
        self._count = 0
        self._put(format_header(id_, topics))
        self._flush()

    def end(self) -> None:
        """Request the consumer to read up to the end and stop."""
        self._is_over.set()

    def run(self, idle_timeout_s: float | None = None) -> int:
        """Write messages until a stop request or `idle_timeout_s` without messages; return their number.

        Raises FilesUnusable, Refused, ServerUnreachable.
        """
        idle_polls = 0
        while not self._is_over.is_set() and (idle_timeout_s is None or idle_polls * _POLL_S < idle_timeout_s):
            idle_polls = 0 if self._read_available() else idle_polls + 1
        for record in self._consumer.records(timeout_s=_REST_S, until="end"):
            self._write(record)
        self._flush()
        return self._count

    def _read_available(self) -> bool:
        """Write available messages; return whether there were any."""
        before = self._count
        for record in self._consumer.records(timeout_s=_POLL_S):
            self._write(record)
            if self._count % _PROGRESS_RECORDS == 0:
                self._flush()
                if self._is_over.is_set():
                    break
        if self._count != before:
            self._flush()
        return self._count != before

    def _write(self, record: ConsumerRecord) -> None:
        topic = record.topic.removeprefix(self._prefix)
        message = record.value.decode("utf-8", "backslashreplace")
        self._put(format_row(topic, message, Origin.from_headers(record.headers)))
        self._count += 1

    def _put(self, text: str) -> None:
        with self._explained():
            self._file.write(text)

    def _flush(self) -> None:
        with self._explained():
            self._file.flush()
        self._report(self._count)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FilesUnusable(f"{self._file.name} cannot be written: {error.strerror}") from error
