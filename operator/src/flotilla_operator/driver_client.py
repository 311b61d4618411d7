"""Client of Spark drivers, which serve their progress over HTTP."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from flotilla.net import Pool
from flotilla_operator.pipelines.driver_pod import PROGRESS_PORT
from flotilla_operator.pipelines.progress import Progress, read_progress
from flotilla_operator.pipelines.states import RUNNING, Pod

logger = logging.getLogger(__name__)

_REQUEST_S = 2.0
_ALL_S = 3.0
_RESPONSE_BYTES_MAX = 4 << 20
_CONCURRENCY_MAX = 16
_OK = 200

Result = TypeVar("Result")


async def gather_results(requests: Mapping[str, Coroutine[Any, Any, Result | None]]) -> dict[str, Result]:
    """Run requests at the same time, at most for some seconds; failed and slow ones have no result."""
    tasks = {name: asyncio.create_task(one) for name, one in requests.items()}
    if tasks:
        await asyncio.wait(tasks.values(), timeout=_ALL_S)
    results = {}
    for name, task in tasks.items():
        if not task.done():
            task.cancel()
            continue
        error = task.exception()
        if error is not None:  # drivers run code of users: any error is possible
            logger.debug("request failed name=%s error=%r", name, str(error))
        elif (found := task.result()) is not None:
            results[name] = found
    return results


class DriverClient:
    """Client of all running drivers."""

    def __init__(self) -> None:
        self._pool = Pool(bytes_max=_RESPONSE_BYTES_MAX)
        self._limit = asyncio.Semaphore(_CONCURRENCY_MAX)

    async def get_progress(self, pods: Sequence[Pod]) -> dict[str, Progress]:
        """Get the progress of all running drivers, by pod name; those that do not answer are missing."""
        running = [one for one in pods if one.phase == RUNNING and one.address and not one.is_terminating]
        return await gather_results({one.name: self._get(one) for one in running})

    async def _get(self, pod: Pod) -> Progress | None:
        host = f"[{pod.address}]" if ":" in (pod.address or "") else pod.address
        url = f"http://{host}:{PROGRESS_PORT}"
        async with self._limit:
            response = await self._pool.request(url, "GET", "/progress", b"", (), timeout_s=_REQUEST_S)
        return read_progress(bytes(response.body)) if response.status == _OK else None

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()
