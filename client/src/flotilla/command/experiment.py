"""`flotilla experiment`: producers and consumers as processes of their own, and a checker that proves what they got.

It declares and acts; what an experiment is stands in `flotilla.experiments`, and how it is shown in `reporting`.
"""

import asyncio
import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import TextIO

import click

from flotilla.command import asking, reporting
from flotilla.command.errors import CommandError, InputInvalid
from flotilla.command.experiment_options import Step, asks_where, has_broker, has_prefix, has_seed, is_single
from flotilla.command.options import DURATION, FILE, Group, answers_json, examples
from flotilla.command.speaking import count, say, tell
from flotilla.experiments import api_calls, api_walk, files, running
from flotilla.experiments.checking import check as check_logs
from flotilla.experiments.consumer_logs import consumer_file
from flotilla.experiments.consuming import ConsumerStep
from flotilla.experiments.errors import ExperimentError, FilesUnusable, LogInvalid
from flotilla.experiments.plans import PLANS, Plan
from flotilla.experiments.producing import produce as produce_log
from flotilla.experiments.samples import make_sample

_TASK = (sys.executable, "-P", "-m", "flotilla.command", "experiment")
_ABOUT_FILES = (
    "Topics that are not there are made, with one partition. What producers send stands in producer_1.txt and so on, "
    "in --log-loc; if there is none, it is made up. What consumers got is written to consumer_1.txt and so on."
)


@click.group(cls=Group)
def experiment() -> None:
    """Have producers and consumers work, each a process of its own, and prove that consumers got what they should.

    2P2C and 5P3C run a whole experiment. The other tasks are the single steps of one, and a test of the HTTP API.
    """


# -- whole experiments --------------------------------------------------------------------------------------------


def _declare(plan: Plan) -> None:
    """Declare the task that runs a plan."""
    size = f"{len(plan.producers)} producers and {len(plan.consumers)} consumers"
    text = f"Run {size}, and check what consumers got.\n\n\b\n{plan}\n\n{_ABOUT_FILES}"

    @experiment.command(
        plan.name, help=text, short_help=f"run {size}", epilog=examples(f"flotilla experiment {plan.name}")
    )
    @click.option(
        "--log-loc",
        "--log_loc",
        "folder",
        type=FILE,
        default=Path(plan.name),
        show_default=True,
        metavar="DIR",
        help="the folder with the files",
    )
    @has_prefix
    @has_seed
    @has_broker
    @answers_json
    @asks_where("broker")
    def run(server: asking.Server, folder: Path, prefix: str, seed: int, steps: int, as_json: bool) -> int:
        with _explained(server):
            if not files.has_producers(folder):
                files.save_producers(folder, make_sample(plan, seed, steps))
                tell(f"what producers send was made up, in {folder}")
            return _run(plan, server, folder, prefix, as_json)


for _plan in PLANS.values():
    _declare(_plan)


def _run(plan: Plan, server: asking.Server, folder: Path, prefix: str, as_json: bool) -> int:
    """Run a plan whose files are there; return the exit code."""
    sent = files.load_producers(folder, plan)
    with server.open() as client:
        running.have_topics(client, [prefix + topic for topic in plan.topics])
    files.remove_consumers(folder)  # what was found last time stays until there is something new to find
    setup = running.Setup(plan, folder, prefix, _TASK, _for_steps(server))
    messages = sum(len(log.lines) for log in sent)
    copies = sum(plan.readers(line.topic) for log in sent for line in log.lines)
    with reporting.progress(messages, copies) as on_progress:
        asyncio.run(running.run(setup, on_progress))
    received = [files.load_consumer(folder, consumer_file(one)) for one in plan.consumers]
    return reporting.show_report(check_logs(sent, received), as_json)


def _for_steps(server: asking.Server) -> dict[str, str]:
    """Tell steps whom to ask, and as who. What was said with flags or a context they cannot know."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLOTILLA_")}
    kept["FLOTILLA_URL"] = server.url
    if server.token is not None:
        kept["FLOTILLA_TOKEN"] = server.token
    if server.ca is not None:
        kept["FLOTILLA_TLS_CA"] = str(server.ca)
    return kept


# -- single steps -------------------------------------------------------------------------------------------------


@experiment.command(
    cls=Step,
    epilog=examples(
        "flotilla experiment produce --id 1 --topics T1 T2 T3 --broker 127.0.0.1:8080 --log-loc ./test/5P3C"
    ),
)
@is_single
@answers_json
@asks_where("broker")
def produce(
    server: asking.Server,
    id_: int,
    topics: tuple[str, ...],
    folder: Path,
    prefix: str,
    as_json: bool,
) -> None:
    """Send what producer_N.txt says.

    Lines with the same mark, as in P1-2, are sent at the same time; the next ones when all of them were acknowledged. A
    file that does not fit is refused before anything is sent.
    """
    with _explained(server):
        log = files.load_producer(folder, id_, topics)
        with server.open() as client:
            running.have_topics(client, [prefix + topic for topic in topics])
            done = produce_log(client, log, prefix, reporting.make_teller(as_json))
    if not as_json:
        say(f"producer {id_}: {count(done, 'message')} sent")


@experiment.command(
    cls=Step,
    epilog=examples(
        "flotilla experiment consume --id 1 --topics T1 T2 T3 --broker 127.0.0.1:8080 --log-loc ./test/5P3C"
    ),
)
@is_single
@click.option("--timeout", type=DURATION, metavar="TIME", help="end when nothing has come for so long, as in 10s")
@click.option("--until-input-ends", is_flag=True, help="end when standard input does, having read what is there")
@answers_json
@asks_where("broker")
def consume(
    server: asking.Server,
    id_: int,
    topics: tuple[str, ...],
    folder: Path,
    prefix: str,
    timeout: int | None,
    until_input_ends: bool,
    as_json: bool,
) -> None:
    """Write what comes from now on to consumer_N.txt.

    Ctrl-C ends it, when all that is there by then has been written.
    """
    topics = tuple(dict.fromkeys(topics))
    names = [prefix + topic for topic in topics]
    with _explained(server), ExitStack() as stack:
        client = stack.enter_context(server.open())
        running.have_topics(client, names)
        file = stack.enter_context(_open_log(folder, id_))
        step = ConsumerStep(
            client.consumer(names, start="latest"),
            file,
            id_,
            topics,
            prefix=prefix,
            tell=reporting.make_teller(as_json),
        )
        if until_input_ends:
            threading.Thread(target=_await_end_of_input, args=(step.end,), daemon=True).start()
        if not as_json:
            tell(f"consumer {id_} has subscribed to {' '.join(topics)}; Ctrl-C ends it")
        with _ended_by_signals(step.end):
            done = step.run(timeout)
    if not as_json:
        say(f"consumer {id_}: {count(done, 'message')} in {folder / consumer_file(id_)}")


def _open_log(folder: Path, id_: int) -> TextIO:
    path = folder / consumer_file(id_)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return path.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise FilesUnusable(f"{path} cannot be written: {error.strerror}") from error


def _await_end_of_input(end: Callable[[], None]) -> None:
    while os.read(sys.stdin.fileno(), 1 << 16):
        pass
    end()


@contextmanager
def _ended_by_signals(end: Callable[[], None]) -> Iterator[None]:
    """Have the first signal end it in good order, and the second at once."""
    is_first = True

    def note(_: int, __: FrameType | None) -> None:
        nonlocal is_first
        if not is_first:
            raise KeyboardInterrupt
        is_first = False
        end()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _explained(server: asking.Server | None = None) -> Iterator[None]:
    """Turn what keeps an experiment from its work into what people are told; raises CommandError."""
    try:
        with nullcontext() if server is None else asking.explained(server):
            yield
    except (LogInvalid, FilesUnusable) as error:
        raise InputInvalid(str(error)) from error
    except ExperimentError as error:
        raise CommandError(str(error)) from error


# -- files --------------------------------------------------------------------------------------------------------


@experiment.command(epilog=examples("flotilla experiment check ./test/5P3C"))
@click.argument("folder", type=FILE, metavar="DIR", help="the folder with the files")
@answers_json
def check(folder: Path, as_json: bool) -> int:
    """Prove that each consumer got exactly what it should, by the files in a folder.

    Of each of its topics: every message of every producer, once, unchanged, each producer's in order; and all consumers
    of a topic have seen one order. Exit code 1 if not, and what is wrong, with the line.
    """
    with _explained():
        return reporting.show_report(check_logs(*files.load_all(folder)), as_json)


@experiment.command(
    epilog=examples("flotilla experiment sample ./test/5P3C", "flotilla experiment sample big --steps 9000")
)
@click.argument("folder", type=FILE, metavar="DIR", help="the folder with the files")
@click.option("--plan", type=click.Choice(tuple(PLANS)), default="5P3C", show_default=True, help="for which experiment")
@has_seed
@click.option("--force", is_flag=True, help="write over files that are there")
def sample(folder: Path, plan: str, seed: int, steps: int, force: bool) -> None:
    """Make up what producers send: producer_1.txt and so on. The same seed makes the same files."""
    with _explained():
        if not force and files.has_producers(folder):
            raise InputInvalid(f"there are files of producers in {folder}: --force writes over them")
        for path in files.save_producers(folder, make_sample(PLANS[plan], seed, steps)):
            say(str(path))


# -- the HTTP API -------------------------------------------------------------------------------------------------


@experiment.command("api-test", epilog=examples("flotilla experiment api-test http://127.0.0.1:8080"))
@click.argument("where", required=False, metavar="[URL]", help="where a manager is: a URL, or host:port")
@answers_json
@asks_where("where")
def api_test(server: asking.Server, as_json: bool) -> int:
    """Try every call of the HTTP API for people, and the reads of the one for programs, with good and bad input.

    URL is one, or host:port; without it, it is found as by every command. It uses a topic of its own, which it deletes
    at the end. Exit code 1 if a call does not answer as it should.
    """
    topic = f"api-test-{secrets.token_hex(4)}"
    tried: list[api_walk.Tried] = []

    def tell_of(one: api_walk.Tried) -> None:
        tried.append(one)
        reporting.show_call(one, as_json)

    with _explained(server):
        server.probe()  # it is no use to be refused eighty times
        asyncio.run(api_calls.run(server.urls[0], server.token, server.ca, topic, tell_of))
    return reporting.show_calls(tried, as_json)
