"""The folder of an experiment: finds, reads and writes the files of producers and consumers.

Every error names the file and what to do.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from flotilla.experiments.consumer_logs import ConsumerLog, parse_consumer
from flotilla.experiments.errors import FilesUnusable
from flotilla.experiments.plans import Plan
from flotilla.experiments.producer_logs import ProducerLog, format_producer, parse_producer, producer_file

_PRODUCER = re.compile(r"producer_(\d{1,9})\.txt")
_CONSUMER = re.compile(r"consumer_(\d{1,9})\.txt")


def load_producer(folder: Path, producer: int, topics: Collection[str] | None = None) -> ProducerLog:
    """Read the file of a producer. Raises LogInvalid, FilesUnusable."""
    return parse_producer(_read(folder / producer_file(producer)), producer, topics)


def load_producers(folder: Path, plan: Plan) -> list[ProducerLog]:
    """Read the files of the producers of a plan. Raises LogInvalid, FilesUnusable."""
    missing = [producer_file(one) for one in plan.producers if not (folder / producer_file(one)).exists()]
    if missing:
        raise FilesUnusable(
            f"{', '.join(missing)} missing in {folder}: add them, or generate all files with "
            f"`flotilla experiment sample {folder} --plan {plan.name} --force`"
        )
    return [load_producer(folder, one, topics) for one, topics in plan.producers.items()]


def load_all(folder: Path) -> tuple[list[ProducerLog], list[ConsumerLog]]:
    """Read all files of producers and consumers in the folder. Raises LogInvalid, FilesUnusable."""
    producers = [load_producer(folder, one) for one in find_ids(folder, _PRODUCER)]
    consumers = [load_consumer(folder, f"consumer_{one}.txt") for one in find_ids(folder, _CONSUMER)]
    if not producers or not consumers:
        raise FilesUnusable(f"{folder} has no producer_N.txt or no consumer_N.txt: nothing to compare")
    return producers, consumers


def load_consumer(folder: Path, name: str) -> ConsumerLog:
    """Read the file of a consumer. Raises LogInvalid, FilesUnusable."""
    return parse_consumer(_read(folder / name), name)


def has_producers(folder: Path) -> bool:
    """Return whether the folder has a producer file. Raises FilesUnusable."""
    return bool(find_ids(folder, _PRODUCER))


def save_producers(folder: Path, logs: Iterable[ProducerLog]) -> list[Path]:
    """Write producer files; return their paths. Raises FilesUnusable."""
    written = []
    for log in logs:
        path = folder / producer_file(log.producer)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(format_producer(log), encoding="utf-8", newline="\n")
        except OSError as error:
            raise FilesUnusable(f"{path} cannot be written: {error.strerror}") from error
        written.append(path)
    return written


def remove_consumers(folder: Path) -> None:
    """Remove consumer files of an earlier run. Raises FilesUnusable."""
    for one in find_ids(folder, _CONSUMER):
        path = folder / f"consumer_{one}.txt"
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise FilesUnusable(f"{path} cannot be removed: {error.strerror}") from error


def find_ids(folder: Path, pattern: re.Pattern[str]) -> Sequence[int]:
    """List the numbers in the names of matching files. Raises FilesUnusable."""
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
        raise FilesUnusable(f"{path} is not valid UTF-8: {error}") from error
