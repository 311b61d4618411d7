"""Drivers of pipelines, as the operator speaks with them: each tells how far it is."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from flotilla.net import Pool
from flotilla_operator.pipelines.driver import PROGRESS_PORT
from flotilla_operator.pipelines.progress import Progress, read_progress
from flotilla_operator.pipelines.states import RUNNING, Pod

logger = logging.getLogger(__name__)

_ASK_S = 2.0
_ALL_S = 3.0
_ANSWER_BYTES_MAX = 4 << 20
_TOGETHER_MAX = 16
_OK = 200

Answer = TypeVar("Answer")


async def ask_all(questions: Mapping[str, Coroutine[Any, Any, Answer | None]]) -> dict[str, Answer]:
    """Ask all at the same time, and for a short time: a turn does not wait for who does not answer."""
    tasks = {name: asyncio.create_task(one) for name, one in questions.items()}
    if tasks:
        await asyncio.wait(tasks.values(), timeout=_ALL_S)
    answers = {}
    for name, task in tasks.items():
        if not task.done():
            task.cancel()
            continue
        error = task.exception()
        if error is not None:  # whatever it is: who is asked may be anybody's code
            logger.debug("%s does not tell: %s", name, error)
        elif (found := task.result()) is not None:
            answers[name] = found
    return answers


class Drivers:
    """All drivers that run."""

    def __init__(self) -> None:
        self._pool = Pool(bytes_max=_ANSWER_BYTES_MAX)
        self._gate = asyncio.Semaphore(_TOGETHER_MAX)

    async def ask(self, pods: Sequence[Pod]) -> dict[str, Progress]:
        """Ask all that run, at the same time; who does not answer now is left out."""
        running = [one for one in pods if one.phase == RUNNING and one.address and not one.is_leaving]
        return await ask_all({one.name: self._ask(one) for one in running})

    async def _ask(self, pod: Pod) -> Progress | None:
        host = f"[{pod.address}]" if ":" in (pod.address or "") else pod.address
        url = f"http://{host}:{PROGRESS_PORT}"
        async with self._gate:
            response = await self._pool.request(url, "GET", "/progress", b"", (), timeout_s=_ASK_S)
        return read_progress(bytes(response.body)) if response.status == _OK else None

    def close(self) -> None:
        """Hang up."""
        self._pool.close()
