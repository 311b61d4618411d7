"""One consumer of an experiment: writes down what comes from the moment on when it has subscribed.

It ends when it is told to, having written all that is there by then; or when nothing has come for long. What is written
is flushed whenever there is nothing more to do, so that one can look on.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from flotilla.client.consumer import Consumer
from flotilla.client.positions import ConsumerRecord
from flotilla.experiments.consumer_logs import Origin, write_head, write_row
from flotilla.experiments.errors import FilesUnusable

_TURN_S = 0.2  # how soon it notices that it is told to end
_TELL_RECORDS = 100
_REST_S = 60.0  # what is there already may take this long, while a leader is elected


class ConsumerStep:
    """A consumer and its file. `end` may be called from any thread."""

    def __init__(
        self,
        consumer: Consumer,
        file: TextIO,
        id_: int,
        topics: Sequence[str],
        *,
        prefix: str,
        tell: Callable[[int], object],
    ) -> None:
        self._consumer = consumer
        self._file = file
        self._prefix = prefix
        self._tell = tell
        self._is_over = threading.Event()
        self._count = 0
        self._put(write_head(id_, topics))
        self._flush()

    def end(self) -> None:
        """Have it write what is there by now, and end."""
        self._is_over.set()

    def run(self, quiet_s: float | None = None) -> int:
        """Write what comes until it is to end, or nothing has come for `quiet_s`; return how many messages came.

        Raises FilesUnusable, Refused, ServerUnreachable.
        """
        turns = 0
        while not self._is_over.is_set() and (quiet_s is None or turns * _TURN_S < quiet_s):
            turns = 0 if self._take_some() else turns + 1
        for record in self._consumer.records(timeout_s=_REST_S, until="end"):
            self._write(record)
        self._flush()
        return self._count

    def _take_some(self) -> bool:
        """Write what there is, and wait a little for more; tell whether anything came."""
        before = self._count
        for record in self._consumer.records(timeout_s=_TURN_S):
            self._write(record)
            if self._count % _TELL_RECORDS == 0:
                self._flush()
                if self._is_over.is_set():
                    break
        if self._count != before:
            self._flush()
        return self._count != before

    def _write(self, record: ConsumerRecord) -> None:
        topic = record.topic.removeprefix(self._prefix)
        message = record.value.decode("utf-8", "backslashreplace")
        self._put(write_row(topic, message, Origin.from_headers(record.headers)))
        self._count += 1

    def _put(self, text: str) -> None:
        with self._explained():
            self._file.write(text)

    def _flush(self) -> None:
        with self._explained():
            self._file.flush()
        self._tell(self._count)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FilesUnusable(f"{self._file.name} cannot be written: {error.strerror}") from error
