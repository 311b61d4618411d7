"""Preflight checks, then the job: Spark takes seconds to start, so topics are checked before."""

import argparse
import contextlib
import importlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from flotilla import ConfigInvalid, FlotillaError, NotAllowed, ServerUnreachable, TopicMissing
from flotilla.client.config import DEFAULT_URL
from flotilla_spark.errors import ApplicationError, PreflightFailed, SparkMissing

_REQUEST_S = 5.0


def launch(name: str, options: argparse.Namespace, topics: Sequence[str]) -> int:
    """Run an application that needs these topics; return the exit code. Prints errors in one line."""
    try:
        check_topics(options, topics)
        check_spark()
        run = importlib.import_module("flotilla_spark.runner").run
        job = importlib.import_module(f"flotilla_spark.jobs.{name}")
        return int(run(name, options, job.start))
    except ApplicationError as error:
        if options.verbose and error.__cause__ is not None:
            raise
        print(f"flotilla-spark {name}: {error}", file=sys.stderr)  # noqa: T201 - error output
        return 1


def check_topics(options: argparse.Namespace, topics: Sequence[str]) -> None:
    """Check that a manager is reachable and that topics exist; raises PreflightFailed."""
    from flotilla import Client  # noqa: PLC0415 - not needed for help

    url = options.url or os.environ.get("FLOTILLA_URL") or DEFAULT_URL
    try:
        token = None if options.token_file is None else Path(options.token_file).read_text(encoding="utf-8").strip()
        with Client(url, token=token, ca=options.ca, route=options.route, request_s=_REQUEST_S) as client:
            for topic in topics:
                try:
                    client.topics.offsets(topic)
                except TopicMissing as error:
                    raise PreflightFailed(
                        f"topic '{topic}' does not exist at {url}; create it with `flotilla topics create {topic}`"
                    ) from error
                except NotAllowed:
                    if topic not in getattr(options, "topics", ()):
                        continue  # a token that can write to a topic may be unable to read it
                    raise
    except OSError as error:
        raise PreflightFailed(f"--token-file {options.token_file} cannot be read: {error.strerror}") from error
    except ServerUnreachable as error:
        raise PreflightFailed(_with_hint(error, "set --url or FLOTILLA_URL to the address of a manager")) from error
    except NotAllowed as error:
        raise PreflightFailed(_with_hint(error, _token_hint(options.token_file))) from error
    except (ConfigInvalid, FlotillaError) as error:
        raise PreflightFailed(str(error)) from error


def _token_hint(token_file: str | None) -> str:
    source = os.environ.get("FLOTILLA_TOKEN_SOURCE")  # set by the operator, which takes the token from a Secret
    if source and token_file is None:
        return f"check {source}"
    return "pass a valid token in FLOTILLA_TOKEN or --token-file"


def _with_hint(error: Exception, hint: str) -> str:
    return f"{str(error).rstrip('. ')}; {hint}"


def check_spark() -> None:
    """Check that Spark and Java are installed; raises SparkMissing."""
    if importlib.util.find_spec("pyspark") is None:
        raise SparkMissing("Spark is not installed: run `make spark`, or `pip install pyspark==4.3.0`")
    home = os.environ.get("JAVA_HOME")
    with contextlib.suppress(OSError):
        if shutil.which("java", path=f"{home}/bin" if home else None) is None:
            raise SparkMissing(
                "Java not found. Spark needs Java 17 or newer; on Debian: apt-get install openjdk-17-jre-headless"
            )
