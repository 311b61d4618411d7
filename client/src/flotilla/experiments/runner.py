"""Runs an experiment, with a process for each producer and consumer.

First all consumers subscribe; then producers start; when the last one has finished, consumers read up to the end and
stop. Processes report their progress as JSON lines on standard output. A consumer runs as long as its standard input is
open: it stops when the runner closes it, and also if the runner is killed.

If a process fails, the others are stopped, and StepFailed names the process and the reason.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flotilla import Client
from flotilla.experiments.errors import StepFailed, TopicUnusable
from flotilla.experiments.plans import Plan
from flotilla.myqueue.producers import ensure_topic

_STOP_S = 5.0
_START_S = 60.0  # limit for consumers to subscribe
_END_S = 120.0  # limit for consumers to read up to the end
_OUTPUT_BYTES_MAX = 64 << 10


@dataclass(frozen=True)
class Progress:
    """Numbers of acknowledged and of received messages."""

    produced: int = 0
    consumed: int = 0


@dataclass(frozen=True)
class RunConfig:
    """Settings of a run. `produce` and `consume` are appended to `command`."""

    plan: Plan
    folder: Path
    prefix: str
    command: Sequence[str]
    environment: Mapping[str, str]


def ensure_topics(client: Client, topics: Iterable[str]) -> None:
    """Create missing topics with one partition, and check existing ones.

    Raises TopicUnusable, Refused, ServerUnreachable.
    """
    for name in topics:
        count = len(ensure_topic(client, name).partitions)
        if count != 1:
            raise TopicUnusable(
                f"topic '{name}' has {count} partitions, but an experiment needs exactly one: delete the topic, or use "
                "other names with --prefix"
            )


async def run(config: RunConfig, on_progress: Callable[[Progress], object] = lambda _: None) -> None:
    """Run all producers and consumers. Raises StepFailed."""
    counts: dict[str, int] = {}

    def note(name: str, count: int) -> None:
        counts[name] = count
        produced = sum(found for one, found in counts.items() if one.startswith("producer"))
        on_progress(Progress(produced, sum(counts.values()) - produced))

    steps: list[_Step] = []
    try:
        for id_, topics in config.plan.consumers.items():
            steps.append(await _Step.start(config, "consumer", id_, topics, note))
        consumers = list(steps)
        await _wait([one.ready for one in consumers], consumers, _START_S, "not all consumers have subscribed")
        for id_, topics in config.plan.producers.items():
            steps.append(await _Step.start(config, "producer", id_, topics, note))
        await _wait([one.work for one in steps if one not in consumers], consumers)
        for one in consumers:
            one.finish()
        await _wait([one.work for one in consumers], (), _END_S, "not all consumers have ended")
    finally:
        await asyncio.gather(*(one.stop() for one in steps))


class _Step:
    """A producer or consumer process. It fails with an exit code other than 0, or if a consumer ends too early."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, note: Callable[[str, int], object]) -> None:
        self._name = name
        self._process = process
        self._note = note
        self._may_end = name.startswith("producer")
        self._is_ready = asyncio.Event()
        self.work = asyncio.create_task(self._watch())
        self.ready = asyncio.create_task(_until(self._is_ready))

    @classmethod
    async def start(
        cls, config: RunConfig, kind: str, id_: int, topics: Sequence[str], note: Callable[[str, int], object]
    ) -> "_Step":
        """Start a process, in a session of its own: Ctrl-C reaches only the runner, which stops it."""
        options = ["--log-loc", str(config.folder), "--prefix", config.prefix, "--json"]
        verb = ["produce"] if kind == "producer" else ["consume", "--until-input-ends"]
        process = await asyncio.create_subprocess_exec(
            *config.command,
            *verb,
            *("--id", str(id_), "--topics", *topics, *options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(config.environment),
            start_new_session=True,
        )
        return cls(f"{kind} {id_}", process, note)

    async def _watch(self) -> None:
        out, errors = self._process.stdout, self._process.stderr
        assert out is not None and errors is not None  # noqa: S101, PT018 - both are pipes
        error_output = asyncio.create_task(_read_end(errors))
        try:
            async for line in out:
                self._on_output(json.loads(line))
            code = await self._process.wait()
            text = (await error_output).decode("utf-8", "replace").strip()
        finally:
            error_output.cancel()
        if code != 0 or not self._may_end:
            raise StepFailed(f"{self._name} exited with code {code}: {text or 'no error message'}")

    def _on_output(self, progress: Mapping[str, int]) -> None:
        self._is_ready.set()
        self._note(self._name, progress["messages"])

    def finish(self) -> None:
        """Let a consumer read up to the end and stop."""
        self._may_end = True
        self._close_input()

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def stop(self) -> None:
        """Stop the process, and kill it if necessary."""
        self.ready.cancel()
        self._close_input()
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await asyncio.wait([self.work])
        except TimeoutError:
            self._process.kill()
        await asyncio.gather(self.work, self.ready, return_exceptions=True)


async def _read_end(stream: asyncio.StreamReader) -> bytes:
    """Read the stream, and keep its last bytes."""
    kept = b""
    while some := await stream.read(_OUTPUT_BYTES_MAX):
        kept = (kept + some)[-_OUTPUT_BYTES_MAX:]
    return kept


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _wait(
    wanted: Iterable[asyncio.Task[None]], alive: Iterable[_Step], limit_s: float | None = None, trouble: str = ""
) -> None:
    """Wait for all tasks. Raises StepFailed if one of them or one of the `alive` processes fails."""
    pending, others = set(wanted), {one.work for one in alive}
    try:
        async with asyncio.timeout(limit_s):
            while pending:
                done, _ = await asyncio.wait(pending | others, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                pending -= done
    except TimeoutError:
        raise StepFailed(f"{trouble} within {limit_s:g} s") from None
