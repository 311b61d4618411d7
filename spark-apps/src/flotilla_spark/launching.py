"""From a command line that is right to a job that runs: first the system is asked, as Spark takes seconds to start."""

import argparse
import contextlib
import importlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from flotilla.client.errors import ConfigInvalid, FlotillaError, NotAllowed, ServerUnreachable, TopicMissing
from flotilla_spark.arguments import DEFAULT_URL
from flotilla_spark.errors import ApplicationError, SparkMissing, SystemUnfit

_PATIENCE_S = 5.0


def launch(name: str, options: argparse.Namespace, topics: Sequence[str]) -> int:
    """Run the job of a name, which needs these topics; return the exit code. Why it cannot be is told in a line."""
    try:
        check_topics(options, topics)
        check_spark()
        run = importlib.import_module("flotilla_spark.running").run
        job = importlib.import_module(f"flotilla_spark.jobs.{name}")
        return int(run(name, options, job.start))
    except ApplicationError as error:
        if options.verbose and error.__cause__ is not None:
            raise
        print(f"flotilla-spark {name}: {error}", file=sys.stderr)  # noqa: T201 - for people
        return 1


def check_topics(options: argparse.Namespace, topics: Sequence[str]) -> None:
    """See that somebody answers, and that topics are there; raises SystemUnfit."""
    from flotilla import Client  # noqa: PLC0415 - help does without

    url = options.url or os.environ.get("FLOTILLA_URL") or DEFAULT_URL
    try:
        token = None if options.token_file is None else Path(options.token_file).read_text(encoding="utf-8").strip()
        with Client(url, token=token, ca=options.ca, route=options.route, request_s=_PATIENCE_S) as client:
            for topic in topics:
                try:
                    client.topics.offsets(topic)
                except TopicMissing as error:
                    raise SystemUnfit(
                        f"there is no topic '{topic}' at {url}; `flotilla topics create {topic}` makes it"
                    ) from error
                except NotAllowed:
                    if topic not in getattr(options, "topics", ()):
                        continue  # who writes to a topic need not be allowed to read it
                    raise
    except OSError as error:
        raise SystemUnfit(f"--token-file: {options.token_file} cannot be read: {error.strerror}") from error
    except ServerUnreachable as error:
        raise SystemUnfit(f"{error} --url or FLOTILLA_URL says where a system is") from error
    except NotAllowed as error:
        raise SystemUnfit(f"{error} A token is in FLOTILLA_TOKEN, or in the file --token-file") from error
    except (ConfigInvalid, FlotillaError) as error:
        raise SystemUnfit(str(error)) from error


def check_spark() -> None:
    """See that there are Spark and Java; raises SparkMissing."""
    if importlib.util.find_spec("pyspark") is None:
        raise SparkMissing("Spark is not installed: `make spark` does that, and elsewhere `pip install pyspark==4.3.0`")
    home = os.environ.get("JAVA_HOME")
    with contextlib.suppress(OSError):
        if shutil.which("java", path=f"{home}/bin" if home else None) is None:
            raise SparkMissing(
                "Spark needs Java 17 or newer; on Debian, as root: apt-get install openjdk-17-jre-headless"
            )
