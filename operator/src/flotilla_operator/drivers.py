"""Drivers of pipelines, as the operator speaks with them: each tells how far it is."""

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from flotilla.net import AnswerInvalid, Disconnected, Pool
from flotilla_operator.pipelines.driver import PROGRESS_PORT
from flotilla_operator.pipelines.progress import Progress, read_progress
from flotilla_operator.pipelines.states import Pod

logger = logging.getLogger(__name__)

_ASK_S = 2.0
_ANSWER_BYTES_MAX = 4 << 20
_TOGETHER_MAX = 16
_OK = 200


class Drivers:
    """All drivers that run."""

    def __init__(self) -> None:
        self._pool = Pool(bytes_max=_ANSWER_BYTES_MAX)
        self._gate = asyncio.Semaphore(_TOGETHER_MAX)

    async def ask(self, pods: Mapping[str, Pod]) -> dict[str, Progress]:
        """Ask all that run, at the same time; who does not answer now is left out."""
        running = [one for one in pods.values() if one.phase == "Running" and one.address and not one.is_leaving]
        found = await asyncio.gather(*(self._ask(one) for one in running))
        return {pod.name: one for pod, one in zip(running, found, strict=True) if one is not None}

    async def _ask(self, pod: Pod) -> Progress | None:
        host = f"[{pod.address}]" if ":" in (pod.address or "") else pod.address
        url = f"http://{host}:{PROGRESS_PORT}"
        try:
            async with self._gate:
                response = await self._pool.request(url, "GET", "/progress", b"", (), timeout_s=_ASK_S)
            return read_progress(bytes(response.body)) if response.status == _OK else None
        except (Disconnected, AnswerInvalid, TimeoutError, OSError, ValueError, msgspec.DecodeError) as error:
            logger.debug("%s does not tell how far it is: %s", pod.name, error)
            return None

    def close(self) -> None:
        """Hang up."""
        self._pool.close()
