"""Sends the requests of `api_test` to a manager, each once and without retries: the test is about the server."""

import json
from collections.abc import Callable
from pathlib import Path

from flotilla import ServerUnreachable
from flotilla.client.config import ClientConfig
from flotilla.experiments.api_test import Answer, Body, CallResult, run_test
from flotilla.net import Disconnected, Pool, Response

_CALL_S = 30.0
_JSON = (("accept", "application/json"), ("content-type", "application/json"))


async def run(url: str, token: str | None, ca: Path | None, topic: str, report: Callable[[CallResult], object]) -> None:
    """Send all requests, and report each result. Raises ConfigInvalid, ServerUnreachable."""
    config = ClientConfig(urls=(url,), token=token, ca=ca)
    pool = Pool(tls=config.make_tls())

    async def ask(method: str, target: str, body: Body | None) -> Answer:
        content = b"" if body is None else json.dumps(body).encode()
        try:
            response = await pool.request(url, method, target, content, (*_JSON, *config.headers), _CALL_S)
        except Disconnected as error:
            raise ServerUnreachable(f"no answer to {method} {target}: {error}") from error
        return _read(response)

    try:
        await run_test(ask, report, topic)
    finally:
        pool.close()


def _read(response: Response) -> Answer:
    try:
        found = response.json()
    except ValueError:
        found = None
    text = response.body.decode("utf-8", "replace")
    return Answer(response.status, found if isinstance(found, dict) else {}, text)
