"""The supervisor: starts processes, probes them, handles their exits, and performs the actions of `supervision`.

It is one event loop in the main thread: on Linux, children die with the *thread* that started them. It never waits for
a child; SIGCHLD reports exits.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from flotilla.up import logs, probe, shutdown, supervision
from flotilla.up.display import Display, QuickStart, describe_unready
from flotilla.up.launch import ChildContext, Launcher, Process
from flotilla.up.plan import Child
from flotilla.up.supervision import Kill, Phase, ProcessState, ReportEvent, Severity, ShowLog, Start

PROBE_STARTING_S = 0.1
PROBE_S = 1.0
ROTATE_S = 1.0
STILL_WAITING_S = 10.0
STOP_TWICE_S_MIN = 0.5  # some tools signal a process and its group: that is one request to stop
_SHUTDOWN_POLL_S = 0.05


class Supervisor:
    """Runs the children until a signal."""

    def __init__(
        self,
        children: Sequence[Child],
        launch: Launcher,
        context: ChildContext,
        display: Display,
        *,
        quick_start: QuickStart,
        began: float,
    ) -> None:
        self._children = {child.name: child for child in children}
        self._launch = launch
        self._context = context
        self._display = display
        self._quick_start = quick_start
        self._began = began
        self._watched = {name: ProcessState(name) for name in self._children}
        self._processes: dict[str, Process] = {}
        self._log_starts: dict[str, int] = {}
        self._stops = 0  # number of stop requests
        self._stopped_at = 0.0
        self._changed = asyncio.Event()
        self._ready = asyncio.Event()  # all processes were ready at once

    async def run(self) -> None:
        """Run all processes until a signal; none is left when this returns."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # ignored by `nohup` and background jobs
                loop.add_signal_handler(number, self._on_stop)
        loop.add_signal_handler(signal.SIGCHLD, self._on_child_exit)
        tasks = [loop.create_task(self._probe_forever(child)) for child in self._children.values()]
        tasks += [loop.create_task(self._rotate_forever()), loop.create_task(self._report_ready())]
        for task in tasks:
            task.add_done_callback(lambda _: self._changed.set())
        try:
            for name in self._children:
                self._apply(name, supervision.TimerFired())
            await self._until_stopped(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._shut_down()

    async def _until_stopped(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        while self._stops == 0:
            self._changed.clear()
            for task in tasks:
                if task.done():
                    task.result()  # raises errors of a task: exit rather than supervise partially
            await self._changed.wait()

    # -- events -------------------------------------------------------------------------------------------

    def _on_stop(self) -> None:
        now = time.monotonic()
        if self._stops and now - self._stopped_at < STOP_TWICE_S_MIN:
            return
        self._stops, self._stopped_at = self._stops + 1, now
        self._changed.set()

    def _on_child_exit(self) -> None:
        for name, process in list(self._processes.items()):
            code = process.poll()
            if code is not None:
                del self._processes[name]
                self._apply(name, supervision.Exited(process.pid, code))
        self._changed.set()

    def _apply(self, name: str, event: supervision.Event) -> None:
        """Apply an event to the state of a child, and perform the actions."""
        if self._stops:
            return
        before, now = self._watched[name], time.monotonic()
        after, actions = supervision.step(before, event, now)
        self._watched[name] = after
        if after.due is not None and (after.due != before.due or isinstance(event, supervision.TimerFired)):
            asyncio.get_running_loop().call_later(
                max(0.0, after.due - now), self._apply, name, supervision.TimerFired()
            )
        for action in actions:
            self._perform(name, action)
        if all(child.phase is Phase.READY for child in self._watched.values()):
            self._ready.set()
        self._changed.set()

    def _perform(self, name: str, action: supervision.Action) -> None:
        match action:
            case Start():
                self._apply(name, self._start(name))
            case Kill():
                self._processes[name].kill()
            case ReportEvent(text, severity):
                self._display.event(text, severity)
            case ShowLog():
                self._display.log(name, logs.tail(self._log_of(name), self._log_starts.get(name, 0)))

    def _start(self, name: str) -> supervision.Event:
        self._log_starts[name] = logs.size_of(self._log_of(name))
        try:
            process = self._launch(self._children[name], self._context)
        except OSError as error:
            return supervision.StartFailed(str(error))
        self._processes[name] = process
        return supervision.Started(process.pid)

    # -- background tasks ------------------------------------------------------------------------

    async def _probe_forever(self, child: Child) -> None:
        while True:
            pid = self._watched[child.name].pid
            if pid is not None:
                health = await probe.check(child.port)
                self._apply(child.name, supervision.Probed(pid, health.alive, health.ready, health.reason))
            ready = self._watched[child.name].phase is Phase.READY
            await asyncio.sleep(PROBE_S if ready else PROBE_STARTING_S)

    async def _rotate_forever(self) -> None:
        while True:
            await asyncio.sleep(ROTATE_S)
            for name in self._children:
                try:
                    logs.rotate(self._log_of(name))
                except OSError as error:
                    self._display.event(f"log of {name} cannot be rotated: {error}", Severity.ERROR)

    async def _report_ready(self) -> None:
        while not self._ready.is_set():
            try:
                await asyncio.wait_for(self._ready.wait(), STILL_WAITING_S)
            except TimeoutError:
                self._display.event(f"still waiting for {describe_unready(self._watched.values())}")
        self._display.table(list(self._children.values()), self._watched)
        self._display.quick_start(self._quick_start)
        self._display.event(
            f"all processes ready after {time.monotonic() - self._began:.1f} s; press Ctrl-C to stop", Severity.OK
        )

    def _log_of(self, name: str) -> Path:
        return self._context.logs / f"{name}.log"

    # -- shutdown ---------------------------------------------------------------------------------------

    async def _shut_down(self) -> None:
        """Stop all processes in order, in bounded time; kill them at once on a second signal."""
        self._stops = max(self._stops, 1)
        self._display.event("stopping; press Ctrl-C again to kill all processes")
        began = time.monotonic()
        terminated: set[str] = set()
        while self._processes:
            self._changed.clear()
            alive = [(name, self._children[name].role) for name in self._processes]
            elapsed_s = time.monotonic() - began if self._stops == 1 else shutdown.SHUTDOWN_S_MAX
            signals = shutdown.next_signals(alive, terminated, elapsed_s)
            for name in signals.terminate:
                self._processes[name].terminate()
            for name in signals.kill:
                self._processes[name].kill()
            terminated.update(signals.terminate)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _SHUTDOWN_POLL_S)
            self._on_child_exit()
        self._display.event(f"stopped after {time.monotonic() - began:.1f} s")
