"""The thin shell: starts processes, asks them how they are, hears of their ends, and does what `supervision` says.

One loop in one thread, the main one: on Linux children die with the *thread* that started them. Nothing here waits for
a child; SIGCHLD says that one has ended.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from flotilla.up import ending, logs, probe, supervision
from flotilla.up.display import Display, ToTry, describe_waiting
from flotilla.up.launch import Launcher, Process, Surroundings
from flotilla.up.plan import Child
from flotilla.up.supervision import Kill, Phase, Say, ShowLog, Start, Tone, Watched

PROBE_STARTING_S = 0.1
PROBE_S = 1.0
ROTATE_S = 1.0
STILL_WAITING_S = 10.0
STOP_TWICE_S_MIN = 0.5  # some send a signal to a process and then to its group: that is one wish to stop, not two
_ENDING_POLL_S = 0.05


class Supervisor:
    """Runs the children until it is told to stop."""

    def __init__(
        self,
        children: Sequence[Child],
        launch: Launcher,
        around: Surroundings,
        display: Display,
        *,
        to_try: ToTry,
        began: float,
    ) -> None:
        self._children = {child.name: child for child in children}
        self._launch = launch
        self._around = around
        self._display = display
        self._to_try = to_try
        self._began = began
        self._watched = {name: Watched(name) for name in self._children}
        self._processes: dict[str, Process] = {}
        self._log_starts: dict[str, int] = {}
        self._stops = 0  # how often it was told to stop
        self._stopped_at = 0.0
        self._changed = asyncio.Event()
        self._ready = asyncio.Event()  # everything was ready at once, for the first time

    async def run(self) -> None:
        """Run everything until a signal comes; nothing is left when this returns."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` and background jobs ignore some on purpose
                loop.add_signal_handler(number, self._on_stop)
        loop.add_signal_handler(signal.SIGCHLD, self._on_children)
        tasks = [loop.create_task(self._keep_asking(child)) for child in self._children.values()]
        tasks += [loop.create_task(self._keep_rotating()), loop.create_task(self._tell_ready())]
        for task in tasks:
            task.add_done_callback(lambda _: self._changed.set())
        try:
            for name in self._children:
                self._feed(name, supervision.Due())
            await self._until_stopped(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._end()

    async def _until_stopped(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        while self._stops == 0:
            self._changed.clear()
            for task in tasks:
                if task.done():
                    task.result()  # raises what was a mistake of ours: better an end than half a supervisor
            await self._changed.wait()

    # -- events -------------------------------------------------------------------------------------------

    def _on_stop(self) -> None:
        now = time.monotonic()
        if self._stops and now - self._stopped_at < STOP_TWICE_S_MIN:
            return
        self._stops, self._stopped_at = self._stops + 1, now
        self._changed.set()

    def _on_children(self) -> None:
        for name, process in list(self._processes.items()):
            code = process.poll()
            if code is not None:
                del self._processes[name]
                self._feed(name, supervision.Exited(process.pid, code))
        self._changed.set()

    def _feed(self, name: str, event: supervision.Event) -> None:
        """Let a child's state take an event, and do what comes of it."""
        if self._stops:
            return
        before, now = self._watched[name], time.monotonic()
        after, actions = supervision.step(before, event, now)
        self._watched[name] = after
        if after.due is not None and (after.due != before.due or isinstance(event, supervision.Due)):
            asyncio.get_running_loop().call_later(max(0.0, after.due - now), self._feed, name, supervision.Due())
        for action in actions:
            self._act(name, action)
        if all(child.phase is Phase.READY for child in self._watched.values()):
            self._ready.set()
        self._changed.set()

    def _act(self, name: str, action: supervision.Action) -> None:
        match action:
            case Start():
                self._feed(name, self._start(name))
            case Kill():
                self._processes[name].kill()
            case Say(text, tone):
                self._display.event(text, tone)
            case ShowLog():
                self._display.log(name, logs.tail(self._log_of(name), self._log_starts.get(name, 0)))

    def _start(self, name: str) -> supervision.Event:
        self._log_starts[name] = logs.size_of(self._log_of(name))
        try:
            process = self._launch(self._children[name], self._around)
        except OSError as error:
            return supervision.NotStarted(str(error))
        self._processes[name] = process
        return supervision.Started(process.pid)

    # -- what goes on all the time ------------------------------------------------------------------------

    async def _keep_asking(self, child: Child) -> None:
        while True:
            pid = self._watched[child.name].pid
            if pid is not None:
                health = await probe.ask(child.port)
                self._feed(child.name, supervision.Probed(pid, health.alive, health.ready, health.reason))
            ready = self._watched[child.name].phase is Phase.READY
            await asyncio.sleep(PROBE_S if ready else PROBE_STARTING_S)

    async def _keep_rotating(self) -> None:
        while True:
            await asyncio.sleep(ROTATE_S)
            for name in self._children:
                try:
                    logs.rotate(self._log_of(name))
                except OSError as error:
                    self._display.event(f"the log of {name} cannot be put aside: {error}", Tone.BAD)

    async def _tell_ready(self) -> None:
        while not self._ready.is_set():
            try:
                await asyncio.wait_for(self._ready.wait(), STILL_WAITING_S)
            except TimeoutError:
                self._display.event(f"still waiting for {describe_waiting(self._watched.values())}")
        self._display.table(list(self._children.values()), self._watched)
        self._display.to_try(self._to_try)
        self._display.event(f"everything is up after {time.monotonic() - self._began:.1f} s; Ctrl-C ends it", Tone.GOOD)

    def _log_of(self, name: str) -> Path:
        return self._around.logs / f"{name}.log"

    # -- the end ------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        """End all processes, in order and in bounded time; at once when told to stop a second time."""
        self._stops = max(self._stops, 1)
        self._display.event("ending; once more Ctrl-C ends everything at once")
        began = time.monotonic()
        told: set[str] = set()
        while self._processes:
            self._changed.clear()
            alive = [(name, self._children[name].role) for name in self._processes]
            elapsed_s = time.monotonic() - began if self._stops == 1 else ending.END_S_MAX
            orders = ending.decide(alive, told, elapsed_s)
            for name in orders.terminate:
                self._processes[name].terminate()
            for name in orders.kill:
                self._processes[name].kill()
            told.update(orders.terminate)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _ENDING_POLL_S)
            self._on_children()
        self._display.event(f"ended after {time.monotonic() - began:.1f} s")
