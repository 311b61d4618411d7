"""Record batches on one core: records per second encoded, verified and decoded.

The values are JSON log lines with a typical compression ratio, cut to `--value-bytes`. Decoding yields lists of values
and keys. Each figure is the best of several rounds. MB/s counts values and keys before compression, GB/s the stored
batch.
"""

import argparse
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from flotilla.records import Compression, check, decode, encode

ROUND_SECONDS = 0.2
COUNTS = (500, 5_000)
LEVELS = ("info", "warning", "error")


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    count: int
    compression: Compression
    keys: bool


def main() -> None:
    """Parse the arguments and print the table."""
    arguments = parse()
    print(f"{arguments.value_bytes}-byte values, best of {arguments.rounds} rounds, one core")
    print(" records  zstd  keys  stored |          encode      |          decode      | check")
    print("                           % |   records/s     MB/s |   records/s     MB/s |  GB/s")
    for count in COUNTS:
        for compression in Compression:
            for keys in (False, True):
                print(row(Case(count, compression, keys), arguments.value_bytes, arguments.rounds))


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--value-bytes", type=int, default=100, help="the size of a value (default: 100)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds per figure, the best counts (default: 7)")
    return parser.parse_args()


def row(case: Case, value_bytes: int, rounds: int) -> str:
    """Measure one case."""
    values = log_lines(case.count, value_bytes)
    keys = [f"host-{index % 97:04}".encode() for index in range(case.count)] if case.keys else None
    batch = encode(values, keys=keys, compression=case.compression)
    header = check(batch)
    payload_bytes = sum(map(len, values)) + sum(map(len, keys or []))

    def open_lists() -> None:
        opened = decode(batch)
        assert len(opened.values) == case.count
        assert len(opened.keys or []) == len(keys or [])

    encode_s = best_seconds(lambda: encode(values, keys=keys, compression=case.compression), rounds)
    decode_s = best_seconds(open_lists, rounds)
    check_s = best_seconds(lambda: check(batch), rounds)
    return (
        f"{case.count:>8,} {'yes' if case.compression else 'no':>5} {'yes' if case.keys else 'no':>5} "
        f"{100 * header.stored_bytes / header.body_bytes:>7.0f} | "
        f"{case.count / encode_s:>11,.0f} {payload_bytes / encode_s / 1e6:>8,.0f} | "
        f"{case.count / decode_s:>11,.0f} {payload_bytes / decode_s / 1e6:>8,.0f} | "
        f"{len(batch) / check_s / 1e9:>5.1f}"
    )


def log_lines(count: int, value_bytes: int) -> list[bytes]:
    """Generate log lines of a web server, the same in each run."""
    source = random.Random(1)  # noqa: S311 - the lines must be the same in each run

    def line() -> bytes:
        text = (
            f'{{"level": "{source.choice(LEVELS)}", "ms": {source.randrange(2_000)}, '
            f'"path": "/items/{source.randrange(10**6)}", "trace": "{source.getrandbits(128):032x}"}}'
        )
        return text.encode().ljust(value_bytes)[:value_bytes]

    return [line() for _ in range(count)]


def best_seconds(call: Callable[[], object], rounds: int) -> float:
    """Return the time of one call in the best round; a round repeats it for 0.2 s."""
    started = time.perf_counter()
    call()
    repeats = max(1, int(ROUND_SECONDS / (time.perf_counter() - started)))
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(repeats):
            call()
        best = min(best, (time.perf_counter() - started) / repeats)
    return best


if __name__ == "__main__":
    main()
