"""The folder of an experiment: finds, reads and writes the logs of producers and consumers. The shell of it all.

Every error says which file, and what to do.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from flotilla.experiments.consumer_logs import ConsumerLog, parse_consumer
from flotilla.experiments.errors import FilesUnusable
from flotilla.experiments.plans import Plan
from flotilla.experiments.producer_logs import ProducerLog, parse_producer, producer_file, write_producer

_PRODUCER = re.compile(r"producer_(\d{1,9})\.txt")
_CONSUMER = re.compile(r"consumer_(\d{1,9})\.txt")


def load_producer(folder: Path, producer: int, topics: Collection[str] | None = None) -> ProducerLog:
    """Read what a producer sends. Raises LogInvalid, FilesUnusable."""
    return parse_producer(_read(folder / producer_file(producer)), producer, topics)


def load_producers(folder: Path, plan: Plan) -> list[ProducerLog]:
    """Read what the producers of a plan send. Raises LogInvalid, FilesUnusable."""
    missing = [producer_file(one) for one in plan.producers if not (folder / producer_file(one)).exists()]
    if missing:
        raise FilesUnusable(
            f"{', '.join(missing)} missing in {folder}: write them, or have all of them made up with "
            f"`flotilla experiment sample {folder} --plan {plan.name} --force`"
        )
    return [load_producer(folder, one, topics) for one, topics in plan.producers.items()]


def load_all(folder: Path) -> tuple[list[ProducerLog], list[ConsumerLog]]:
    """Read the logs of all producers and consumers that are there. Raises LogInvalid, FilesUnusable."""
    producers = [load_producer(folder, one) for one in find_ids(folder, _PRODUCER)]
    consumers = [load_consumer(folder, f"consumer_{one}.txt") for one in find_ids(folder, _CONSUMER)]
    if not producers or not consumers:
        raise FilesUnusable(f"{folder} has no producer_1.txt or no consumer_1.txt, and so on: nothing to compare")
    return producers, consumers


def load_consumer(folder: Path, name: str) -> ConsumerLog:
    """Read what a consumer got. Raises LogInvalid, FilesUnusable."""
    return parse_consumer(_read(folder / name), name)


def has_producers(folder: Path) -> bool:
    """Tell whether there is a log of any producer. Raises FilesUnusable."""
    return bool(find_ids(folder, _PRODUCER))


def save_producers(folder: Path, logs: Iterable[ProducerLog]) -> list[Path]:
    """Write what producers send; return where. Raises FilesUnusable."""
    written = []
    for log in logs:
        path = folder / producer_file(log.producer)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(write_producer(log), encoding="utf-8", newline="\n")
        except OSError as error:
            raise FilesUnusable(f"{path} cannot be written: {error.strerror}") from error
        written.append(path)
    return written


def remove_consumers(folder: Path) -> None:
    """Remove what consumers got before, so that nobody takes it for news. Raises FilesUnusable."""
    for one in find_ids(folder, _CONSUMER):
        path = folder / f"consumer_{one}.txt"
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise FilesUnusable(f"{path} cannot be removed: {error.strerror}") from error


def find_ids(folder: Path, pattern: re.Pattern[str]) -> Sequence[int]:
    """List the numbers in names of files. Raises FilesUnusable."""
    try:
        found = (pattern.fullmatch(path.name) for path in folder.iterdir())
        return sorted(int(one[1]) for one in found if one is not None)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FilesUnusable(f"{folder} cannot be read: {error.strerror}") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise FilesUnusable(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FilesUnusable(f"{path} is no text in UTF-8: {error}") from error
