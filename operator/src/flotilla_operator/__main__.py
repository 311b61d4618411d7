"""`python -m flotilla_operator`: run the operator until it is told to stop."""

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import kopf
import uvloop
from aiohttp import web

from flotilla.serving import logs
from flotilla.serving.server import EXIT_SETTINGS
from flotilla.serving.settings import SettingsInvalid
from flotilla.serving.tls import make_client_context
from flotilla_operator.cache import Cache
from flotilla_operator.control import Control
from flotilla_operator.errors import OperatorError
from flotilla_operator.handlers import make_kopf_settings, make_registry
from flotilla_operator.kube import BROKER, PIPELINE, TOPIC, Kube, NotFound
from flotilla_operator.metrics import Metrics
from flotilla_operator.settings import Settings, load_settings
from flotilla_operator.turns import Turns

logger = logging.getLogger("flotilla_operator")

EXIT_UNDEFINED = 7
_TRIES = 30
_PAUSE_S = 1.0
STALE_S = 120.0  # a turn that takes longer has hung: topics are made in seconds


def main() -> int:
    """Read the settings, and run."""
    try:
        settings = load_settings(sys.argv[1:], os.environ)
        logs.set_up(settings.log_level, "operator")
        for name in ("httpx2", "kopf"):
            logging.getLogger(name).setLevel(logging.WARNING)  # each request and each event is no news
    except SettingsInvalid as error:
        print(f"flotilla_operator: {error}", file=sys.stderr)  # noqa: T201 - logging is not set up yet
        return EXIT_SETTINGS
    return uvloop.run(serve(settings))


async def serve(settings: Settings) -> int:
    """Run until a signal comes, which kopf hears."""
    trust = None if settings.tls_ca is None else make_client_context(settings.tls_ca)
    cache, metrics, kube = Cache(), Metrics(), Kube(settings.namespace)
    control = Control(settings.writer, settings.secret, trust)
    turns = Turns(
        settings.brokers, kube, control, cache, metrics, clock=time.monotonic, now=_now, pipelines=settings.pipelines
    )
    began = time.monotonic()
    if not await _are_defined(kube, (TOPIC, BROKER, PIPELINE)):
        return EXIT_UNDEFINED
    async with _health(settings, turns, metrics, began):
        turning = asyncio.create_task(turns.run())
        logger.info("looks after cluster %s in namespace %s", settings.cluster, settings.namespace)
        try:
            await kopf.operator(
                registry=make_registry(settings.brokers, cache, turns),
                settings=make_kopf_settings(),
                namespaces=[settings.namespace],
                standalone=True,
            )
        finally:
            turning.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await turning
            await _let_go(turns)
    turns.close()
    control.close()
    await kube.close()
    return 0


async def _let_go(turns: Turns) -> None:
    try:
        await turns.lift_finalizers()
    except OperatorError as error:
        logger.warning("finalizers of Topics could not be looked at: %s", error)


async def _are_defined(kube: Kube, kinds: Sequence[str]) -> bool:
    """Whether Kubernetes knows our kinds of resources, or will in a moment: what is not known cannot be watched."""
    trouble = ""
    for _ in range(_TRIES):
        try:
            for kind in kinds:
                await kube.list(kind)
        except NotFound:
            trouble = "Kubernetes does not know our resources: apply the files in crds/, as Helm does"
        except OperatorError as error:
            trouble = f"resources cannot be listed: {error}"
        else:
            return True
        await asyncio.sleep(_PAUSE_S)
    logger.critical("%s", trouble)
    return False


@contextlib.asynccontextmanager
async def _health(settings: Settings, turns: Turns, metrics: Metrics, began: float) -> AsyncIterator[None]:
    """Serve what probes and Prometheus ask for. Alive means: turns end."""

    async def healthz(_: web.Request) -> web.Response:
        seconds = time.monotonic() - (turns.ended_at or began)
        body = {"status": "stale" if seconds > STALE_S else "alive", "last_turn_seconds_ago": round(seconds, 1)}
        return web.json_response(body, status=503 if seconds > STALE_S else 200)

    async def prometheus(_: web.Request) -> web.Response:
        return web.Response(body=metrics.to_bytes(), content_type="text/plain")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/metrics", prometheus)])
    runner = web.AppRunner(app, handle_signals=False, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, settings.host, settings.port).start()
    try:
        yield
    finally:
        await runner.cleanup()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    sys.exit(main())
