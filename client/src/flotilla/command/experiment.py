"""`flotilla experiment`: the commands. The logic is in `flotilla.experiments`, the output in `experiment_report`."""

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

from flotilla.command import connection, experiment_report
from flotilla.command.errors import CommandError, InputInvalid
from flotilla.command.experiment_options import (
    StepCommand,
    address_options,
    broker_option,
    prefix_option,
    sample_options,
    step_options,
)
from flotilla.command.options import DURATION, FILE, Group, examples, json_option
from flotilla.command.output import pluralize, print_lines, print_message
from flotilla.experiments import api_calls, files, runner
from flotilla.experiments.api_test import CallResult
from flotilla.experiments.checker import check as check_logs
from flotilla.experiments.consumer_logs import consumer_file
from flotilla.experiments.errors import ExperimentError, FilesUnusable, LogInvalid
from flotilla.experiments.plans import PLANS, Plan
from flotilla.experiments.samples import make_sample
from flotilla.experiments.steps import ConsumerStep
from flotilla.experiments.steps import produce as produce_log

_TASK = (sys.executable, "-P", "-m", "flotilla.command", "experiment")
_ABOUT_FILES = (
    "Missing topics are created, with one partition. Producers send the messages of producer_N.txt in --log-loc; these "
    "files are generated if there are none. Consumers write what they receive to consumer_N.txt."
)


@click.group(cls=Group)
def experiment() -> None:
    """Run producers and consumers as separate processes, and check that each message was received once and in order.

    2P2C and 5P3C run a complete experiment. The other commands run one part of it, or test the HTTP API.
    """


# -- complete experiments --------------------------------------------------------------------------------------------


def _add_plan_command(plan: Plan) -> None:
    """Add the command that runs a plan."""
    size = f"{len(plan.producers)} producers and {len(plan.consumers)} consumers"
    text = f"Run {size}, and check what was received.\n\n\b\n{plan}\n\n{_ABOUT_FILES}"

    @experiment.command(
        plan.name, help=text, short_help=f"Run {size}.", epilog=examples(f"flotilla experiment {plan.name}")
    )
    @click.option(
        "--log-loc",
        "--log_loc",
        "folder",
        type=FILE,
        default=Path(plan.name),
        metavar="DIR",
        help="Folder with the files of producers and consumers.",
    )
    @prefix_option
    @sample_options
    @broker_option
    @json_option
    @address_options("broker")
    def run(
        server: connection.ConnectionTarget, folder: Path, prefix: str, seed: int, steps: int, as_json: bool
    ) -> int:
        with _translate_errors(server):
            if not files.has_producers(folder):
                files.save_producers(folder, make_sample(plan, seed, steps))
                print_message(f"generated producer files in {folder}")
            return _run(plan, server, folder, prefix, as_json)


for _plan in PLANS.values():
    _add_plan_command(_plan)


def _run(plan: Plan, server: connection.ConnectionTarget, folder: Path, prefix: str, as_json: bool) -> int:
    """Run a plan with existing producer files; return the exit code."""
    sent = files.load_producers(folder, plan)
    with server.open() as client:
        runner.ensure_topics(client, [prefix + topic for topic in plan.topics])
    files.remove_consumers(folder)  # results of the last run are kept until servers answer
    config = runner.RunConfig(plan, folder, prefix, _TASK, _child_environment(server))
    messages = sum(len(log.lines) for log in sent)
    copies = sum(plan.readers(line.topic) for log in sent for line in log.lines)
    with experiment_report.progress(messages, copies) as on_progress:
        asyncio.run(runner.run(config, on_progress))
    received = [files.load_consumer(folder, consumer_file(one)) for one in plan.consumers]
    return experiment_report.print_report(check_logs(sent, received), as_json)


def _child_environment(server: connection.ConnectionTarget) -> dict[str, str]:
    """Build the environment of step processes: it passes on the connection, which options or a context may have set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLOTILLA_")}
    kept["FLOTILLA_URL"] = server.url
    if server.token is not None:
        kept["FLOTILLA_TOKEN"] = server.token
    if server.ca is not None:
        kept["FLOTILLA_TLS_CA"] = str(server.ca)
    return kept


# -- single steps -------------------------------------------------------------------------------------------------


@experiment.command(
    cls=StepCommand,
    epilog=examples(
        "flotilla experiment produce --id 1 --topics T1 T2 T3 --broker 127.0.0.1:8080 --log-loc ./test/5P3C"
    ),
)
@step_options
@json_option
@address_options("broker")
def produce(
    server: connection.ConnectionTarget,
    id_: int,
    topics: tuple[str, ...],
    folder: Path,
    prefix: str,
    as_json: bool,
) -> None:
    """Send the messages of producer_N.txt.

    The lines of one step, such as P1-2, are sent concurrently. The next step starts when all of them are acknowledged.
    An invalid file is rejected before anything is sent.
    """
    with _translate_errors(server):
        log = files.load_producer(folder, id_, topics)
        with server.open() as client:
            runner.ensure_topics(client, [prefix + topic for topic in topics])
            done = produce_log(client, log, prefix, experiment_report.progress_printer(as_json))
    if not as_json:
        print_lines(f"producer {id_}: {pluralize(done, 'message')} sent")


@experiment.command(
    cls=StepCommand,
    epilog=examples(
        "flotilla experiment consume --id 1 --topics T1 T2 T3 --broker 127.0.0.1:8080 --log-loc ./test/5P3C"
    ),
)
@step_options
@click.option("--timeout", type=DURATION, metavar="TIME", help="Stop after this time without messages, e.g. 10s.")
@click.option("--until-input-ends", is_flag=True, help="Stop when standard input is closed.")
@json_option
@address_options("broker")
def consume(
    server: connection.ConnectionTarget,
    id_: int,
    topics: tuple[str, ...],
    folder: Path,
    prefix: str,
    timeout: int | None,
    until_input_ends: bool,
    as_json: bool,
) -> None:
    """Write new messages to consumer_N.txt.

    On Ctrl-C, the consumer reads up to the current end of its topics and stops.
    """
    topics = tuple(dict.fromkeys(topics))
    names = [prefix + topic for topic in topics]
    with _translate_errors(server), ExitStack() as stack:
        client = stack.enter_context(server.open())
        runner.ensure_topics(client, names)
        file = stack.enter_context(_open_log(folder, id_))
        step = ConsumerStep(
            client.consumer(names, start="latest"),
            file,
            id_,
            topics,
            prefix=prefix,
            report=experiment_report.progress_printer(as_json),
        )
        if until_input_ends:
            threading.Thread(target=_wait_for_eof, args=(step.end,), daemon=True).start()
        if not as_json:
            print_message(f"consumer {id_} subscribed to {' '.join(topics)}; press Ctrl-C to stop")
        with _stop_on_signals(step.end):
            done = step.run(timeout)
    if not as_json:
        print_lines(f"consumer {id_}: {pluralize(done, 'message')} in {folder / consumer_file(id_)}")


def _open_log(folder: Path, id_: int) -> TextIO:
    path = folder / consumer_file(id_)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return path.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise FilesUnusable(f"{path} cannot be written: {error.strerror}") from error


def _wait_for_eof(end: Callable[[], None]) -> None:
    while os.read(sys.stdin.fileno(), 1 << 16):
        pass
    end()


@contextmanager
def _stop_on_signals(end: Callable[[], None]) -> Iterator[None]:
    """Stop gracefully on the first signal, and at once on the second."""
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
def _translate_errors(server: connection.ConnectionTarget | None = None) -> Iterator[None]:
    """Translate errors of the client and of experiments into CommandError."""
    try:
        with nullcontext() if server is None else connection.translate_errors(server):
            yield
    except (LogInvalid, FilesUnusable) as error:
        raise InputInvalid(str(error)) from error
    except ExperimentError as error:
        raise CommandError(str(error)) from error


# -- files --------------------------------------------------------------------------------------------------------


@experiment.command(epilog=examples("flotilla experiment check ./test/5P3C"))
@click.argument("folder", type=FILE, metavar="DIR", help="Folder with the files of producers and consumers.")
@json_option
def check(folder: Path, as_json: bool) -> int:
    """Compare the files of consumers with those of producers.

    For each of its topics, a consumer must have received every message of every producer once, unchanged and in the
    order of the producer. All consumers of a topic must have received the same order. If a check fails, the exit code
    is 1, and each problem is printed with its line.
    """
    with _translate_errors():
        return experiment_report.print_report(check_logs(*files.load_all(folder)), as_json)


@experiment.command(
    epilog=examples("flotilla experiment sample ./test/5P3C", "flotilla experiment sample big --steps 9000")
)
@click.argument("folder", type=FILE, metavar="DIR", help="Folder with the files of producers and consumers.")
@click.option("--plan", type=click.Choice(tuple(PLANS)), default="5P3C", help="Experiment to generate files for.")
@sample_options
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def sample(folder: Path, plan: str, seed: int, steps: int, force: bool) -> None:
    """Generate producer files.

    The same seed and number of steps generate the same files.
    """
    with _translate_errors():
        if not force and files.has_producers(folder):
            raise InputInvalid(f"{folder} already has producer files; overwrite them with --force")
        for path in files.save_producers(folder, make_sample(PLANS[plan], seed, steps)):
            print_lines(str(path))


# -- the HTTP API -------------------------------------------------------------------------------------------------


@experiment.command("api-test", epilog=examples("flotilla experiment api-test http://127.0.0.1:8080"))
@click.argument("where", required=False, metavar="[URL]", help="URL or host:port of a manager, instead of --url.")
@json_option
@address_options("where")
def api_test(server: connection.ConnectionTarget, as_json: bool) -> int:
    """Test the HTTP API.

    All endpoints of the simple API and the read endpoints of the v1 API are called with valid and invalid input. The
    test creates a topic of its own and deletes it at the end. The exit code is 1 if a response is not as expected.
    """
    topic = f"api-test-{secrets.token_hex(4)}"
    tried: list[CallResult] = []

    def report(one: CallResult) -> None:
        tried.append(one)
        experiment_report.print_call(one, as_json)

    with _translate_errors(server):
        server.probe()  # fail once, not at every call
        asyncio.run(api_calls.run(server.urls[0], server.token, server.ca, topic, report))
    return experiment_report.print_calls(tried, as_json)
