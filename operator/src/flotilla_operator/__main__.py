"""`python -m flotilla_operator`: run the operator until a signal stops it."""

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from ssl import SSLContext

import kopf
import uvloop
from aiohttp import web

from flotilla_operator.cache import Cache
from flotilla_operator.control_client import ControlClient
from flotilla_operator.errors import NotFound, OperatorError
from flotilla_operator.handlers import make_kopf_settings, make_registry
from flotilla_operator.kubernetes_client import KubernetesClient
from flotilla_operator.metrics import Metrics
from flotilla_operator.names import BROKER, PIPELINE, TOPIC
from flotilla_operator.reconciler import Reconciler
from flotilla_operator.settings import Settings, load_settings
from flotilla_server import logs
from flotilla_server.server import EXIT_SETTINGS
from flotilla_server.settings import SettingsInvalid
from flotilla_server.tls import make_client_context

logger = logging.getLogger("flotilla_operator")

EXIT_LOGIN = 1
EXIT_CANNOT_LIST = 7
_WAIT_S = 30.0
_PAUSE_S = 1.0
STALE_S = 120.0  # a reconcile that takes longer hangs


def main() -> int:
    """Read the settings and run the operator."""
    try:
        settings = load_settings(sys.argv[1:], os.environ)
        logs.set_up(settings.log_level, "operator")
        logging.getLogger("kopf").setLevel(logging.WARNING)  # it logs every event
    except SettingsInvalid as error:
        print(f"flotilla_operator: {error}", file=sys.stderr)  # noqa: T201 - logging is not set up yet
        return EXIT_SETTINGS
    return uvloop.run(serve(settings))


async def serve(settings: Settings) -> int:
    """Run until kopf receives a signal."""
    tls = None if settings.tls_ca is None else make_client_context(settings.tls_ca)
    try:
        kubernetes = await KubernetesClient.connect(settings.namespace)
    except OperatorError as error:
        advice = "check the pod's service account, or KUBECONFIG outside a cluster"
        logger.critical("cannot log in to Kubernetes: %s; %s", error, advice)
        return EXIT_LOGIN
    try:
        return await _serve(settings, kubernetes, tls)
    finally:
        await kubernetes.close()


async def _serve(settings: Settings, kubernetes: KubernetesClient, tls: SSLContext | None) -> int:
    cache, metrics = Cache(), Metrics()
    control = ControlClient(settings.writer, settings.secret, tls)
    reconciler = Reconciler(
        settings.brokers,
        kubernetes,
        control,
        cache,
        metrics,
        clock=time.monotonic,
        now=_now,
        pipeline_installation=settings.pipelines,
    )
    async with (
        contextlib.AsyncExitStack() as stack,
        _serve_health(settings, reconciler, metrics, time.monotonic()),
    ):
        stack.callback(control.close)
        stack.callback(reconciler.close)
        if not await _wait_for_crds(kubernetes, (TOPIC, BROKER, PIPELINE)):
            return EXIT_CANNOT_LIST
        reconciling = asyncio.create_task(reconciler.run())
        logger.info("operator started cluster=%s namespace=%s", settings.cluster, settings.namespace)
        try:
            await kopf.operator(
                registry=make_registry(settings.brokers, cache, reconciler),
                settings=make_kopf_settings(),
                namespaces=[settings.namespace],
                standalone=True,
            )
        finally:
            reconciling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reconciling
            await _remove_finalizers_if_terminating(reconciler)
    return 0


async def _remove_finalizers_if_terminating(reconciler: Reconciler) -> None:
    try:
        await reconciler.remove_finalizers_if_terminating()
    except OperatorError as error:
        logger.warning("finalizers not checked error=%r", str(error))


async def _wait_for_crds(kubernetes: KubernetesClient, kinds: Sequence[str]) -> bool:
    """Wait until all kinds can be listed, at most for `_WAIT_S`; return whether they can."""
    advice = "check the operator's Role and that the API server is reachable"
    problem = f"cannot list resources: no response in {_WAIT_S:g} s; {advice}"
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_WAIT_S):
            while True:
                try:
                    for kind in kinds:
                        await kubernetes.list(kind)
                except NotFound:
                    problem = "CRDs are missing: run kubectl apply --server-side --filename crds/"
                except OperatorError as error:
                    problem = f"cannot list resources: {error}; {advice}"
                else:
                    return True
                await asyncio.sleep(_PAUSE_S)
    logger.critical("%s", problem)
    return False


@contextlib.asynccontextmanager
async def _serve_health(
    settings: Settings, reconciler: Reconciler, metrics: Metrics, started: float
) -> AsyncIterator[None]:
    """Serve /healthz and /metrics. The operator is alive while reconciles finish."""

    async def healthz(_: web.Request) -> web.Response:
        seconds = time.monotonic() - (reconciler.finished_at or started)
        body = {
            "status": "stale" if seconds > STALE_S else "alive",
            "last_reconcile_seconds_ago": round(seconds, 1),
            "last_turn_seconds_ago": round(seconds, 1),  # the name in 0.2; removed in 0.4
        }
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
