"""Runs an experiment: every producer and every consumer is a process of its own.

First all consumers subscribe; then producers begin; when the last one has ended, consumers write what is there and end.
Processes tell how far they are with lines of JSON on their standard output. A consumer goes on for as long as its
standard input is open: so it ends when it should, and also if whoever runs the experiment is killed.

If one does not get to its end, the others are stopped and StepFailed says which and why.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flotilla.client.blocking import Client
from flotilla.experiments.errors import StepFailed, TopicUnfit
from flotilla.experiments.plans import Plan
from flotilla.myqueue.producers import have_topic

_STOP_S = 5.0
_START_S = 60.0  # until consumers have subscribed
_END_S = 120.0  # until consumers have written what is there
_TOLD_BYTES_MAX = 64 << 10


@dataclass(frozen=True)
class Progress:
    """How many messages were acknowledged, and how many were written down by consumers."""

    produced: int = 0
    consumed: int = 0


@dataclass(frozen=True)
class Setup:
    """What a run needs to know: `command` is what `produce` and `consume` are appended to."""

    plan: Plan
    folder: Path
    prefix: str
    command: Sequence[str]
    environment: Mapping[str, str]


def have_topics(client: Client, topics: Iterable[str]) -> None:
    """Make topics with one partition; those that are there must fit. Raises TopicUnfit, Refused, ServerUnreachable."""
    for name in topics:
        count = len(have_topic(client, name).partitions)
        if count != 1:
            raise TopicUnfit(
                f"topic '{name}' is there already with {count} partitions, and an experiment needs one, which has one "
                "order: delete it, or take other names with --prefix"
            )


async def run(setup: Setup, on_progress: Callable[[Progress], object] = lambda _: None) -> None:
    """Run all producers and consumers to their ends. Raises StepFailed."""
    counts: dict[str, int] = {}

    def note(name: str, count: int) -> None:
        counts[name] = count
        produced = sum(found for one, found in counts.items() if one.startswith("producer"))
        on_progress(Progress(produced, sum(counts.values()) - produced))

    steps: list[_Step] = []
    try:
        for id_, topics in setup.plan.consumers.items():
            steps.append(await _Step.start(setup, "consumer", id_, topics, note))
        consumers = list(steps)
        await _wait([one.ready for one in consumers], consumers, _START_S, "not all consumers have subscribed")
        for id_, topics in setup.plan.producers.items():
            steps.append(await _Step.start(setup, "producer", id_, topics, note))
        await _wait([one.work for one in steps if one not in consumers], consumers)
        for one in consumers:
            one.let_end()
        await _wait([one.work for one in consumers], (), _END_S, "not all consumers have ended")
    finally:
        await asyncio.gather(*(one.stop() for one in steps))


class _Step:
    """A process that produces or consumes. It fails if it ends badly, or before it may."""

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
        cls, setup: Setup, kind: str, id_: int, topics: Sequence[str], note: Callable[[str, int], object]
    ) -> "_Step":
        """Start a process. It has a session of its own: Ctrl-C is for us, and we stop it."""
        options = ["--log-loc", str(setup.folder), "--prefix", setup.prefix, "--json"]
        verb = ["produce"] if kind == "producer" else ["consume", "--until-input-ends"]
        process = await asyncio.create_subprocess_exec(
            *setup.command,
            *verb,
            *("--id", str(id_), "--topics", *topics, *options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(setup.environment),
            start_new_session=True,
        )
        return cls(f"{kind} {id_}", process, note)

    async def _watch(self) -> None:
        out, errors = self._process.stdout, self._process.stderr
        assert out is not None and errors is not None  # noqa: S101, PT018 - both are pipes
        said = asyncio.create_task(_read_end(errors))
        try:
            async for line in out:
                self._hear(json.loads(line))
            code = await self._process.wait()
            text = (await said).decode("utf-8", "replace").strip()
        finally:
            said.cancel()
        if code != 0 or not self._may_end:
            raise StepFailed(f"{self._name} ended with exit code {code}: {text or 'it does not say why'}")

    def _hear(self, told: Mapping[str, int]) -> None:
        self._is_ready.set()
        self._note(self._name, told["messages"])

    def let_end(self) -> None:
        """Let a consumer write what is there by now, and end."""
        self._may_end = True
        self._close_input()

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def stop(self) -> None:
        """Make sure that nothing is left."""
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
    """Read everything, and keep the end of it."""
    kept = b""
    while some := await stream.read(_TOLD_BYTES_MAX):
        kept = (kept + some)[-_TOLD_BYTES_MAX:]
    return kept


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _wait(
    wanted: Iterable[asyncio.Task[None]], alive: Iterable[_Step], limit_s: float | None = None, trouble: str = ""
) -> None:
    """Wait until all have ended. Raises StepFailed if one of them, or of those that must be alive, has failed."""
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
