"""Tells managers every second who this broker is, where it is reached and how its replicas are.

Any manager will do. They are tried in turn until one answers, and that one is asked first the next time. Nothing that
a manager says or does disturbs the broker: its replicas need nobody but each other. What is logged is a change.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from ssl import SSLContext

import msgspec

from flotilla.access import TABLE_BYTES_MAX, system_text
from flotilla.net import Disconnected, Pool, Response
from flotilla_broker.api.describing import describe_broken, describe_broker, summarize
from flotilla_broker.server import Broker

logger = logging.getLogger(__name__)

TARGET = "/v1/control/heartbeat"
BODY_BYTES_MAX = 8 << 20
_ANSWER_BYTES_MAX = TABLE_BYTES_MAX + (1 << 20)
_ANSWER_S = 2.0
_RETRY_S_MIN = 0.1  # at a start of the whole system, managers are there a moment later
_RETRY_S_MAX = 0.5
_HEADERS = (("content-type", "application/json"),)
_OK = 200
_NULL = b"null"
_SERVER_ERRORS = 500


class _Accepted(msgspec.Struct):
    status: str = "ok"
    writer_epoch: int = 0
    known: bool = True
    access: msgspec.Raw = msgspec.Raw(b"")  # the table of tokens, if it is another one than the broker has


class _Refused(msgspec.Struct):
    code: str = ""
    message: str = ""


class Outcome(Enum):
    """How a round of asking managers ended."""

    ACCEPTED = "accepted"
    REFUSED = "refused"  # a manager has judged, and others would judge the same
    UNHEARD = "unheard"


def make_heartbeat(broker: Broker) -> bytes:
    """Write down how a broker is."""
    return msgspec.json.encode(
        {
            **describe_broker(broker),
            "disk": {"used_bytes": broker.log.used_bytes, "segments_left": broker.log.space().segments_left},
            "replicas": [summarize(partition) for partition in broker.engine.partitions.values()],
            "broken": describe_broken(broker),
            **({} if broker.access is None else {"access": broker.access.version}),
        }
    )


class Registration:
    """Sends heartbeats until it is cancelled.

    `make` writes one, `accepted` is called when one was accepted; `learn` gets the writer's epoch and the table of
    tokens, if there was one in the answer. `secret` is shown to managers, in the shape that servers show it to each
    other.
    """

    def __init__(
        self,
        managers: Sequence[str],
        make: Callable[[], bytes],
        accepted: Callable[[], None],
        *,
        every_s: float,
        tls: SSLContext | None = None,
        secret: bytes | None = None,
        learn: Callable[[int, bytes], Awaitable[None]] | None = None,
    ) -> None:
        self._managers = list(managers)  # the one that answered last comes first
        self._make = make
        self._accepted = accepted
        self._every_s = every_s
        self._learn = learn
        shown = () if secret is None else (("authorization", f"Bearer {system_text(secret)}"),)
        self._headers = (*_HEADERS, *shown)
        self._pool = Pool(open_max=1, bytes_max=_ANSWER_BYTES_MAX, tls=tls)
        self._state: tuple[str, ...] = ()

    @classmethod
    def of(cls, broker: Broker, tls: SSLContext | None = None) -> "Registration":
        """Register a broker with the managers that it was told of; `tls` says whom to trust."""

        def accepted() -> None:
            broker.is_registered = True

        async def learn(writer_epoch: int, table: bytes) -> None:
            if broker.access is not None:
                is_stale = writer_epoch < broker.identity.writer_epoch  # of a writer that was replaced
                await broker.access.hear(b"" if is_stale else table)

        settings = broker.settings
        return cls(
            settings.managers,
            lambda: make_heartbeat(broker),
            accepted,
            every_s=settings.manager_heartbeat_s,
            tls=tls,
            secret=settings.secret,
            learn=learn,
        )

    async def run(self) -> None:
        """Send heartbeats, one at a time."""
        failures = 0
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                outcome = await self._beat_safely()
                failures = failures + 1 if outcome is Outcome.UNHEARD else 0
                took_s = loop.time() - began
                await asyncio.sleep(self._every_s - took_s if not failures else retry_s(failures))
        finally:
            self._pool.close()

    async def _beat_safely(self) -> Outcome:
        try:
            return await self._beat()
        except Exception as error:  # noqa: BLE001 - whatever it was, the next second is another try
            self._say(logging.ERROR, ("failed", type(error).__name__), f"a heartbeat failed: {error!r}")
            return Outcome.UNHEARD

    async def _beat(self) -> Outcome:
        """Ask managers in turn until one judges."""
        body = self._make()
        if len(body) > BODY_BYTES_MAX:
            self._say(
                logging.ERROR, ("too large",), f"the heartbeat has {len(body)} bytes; {BODY_BYTES_MAX} is the limit"
            )
            return Outcome.REFUSED
        reasons = []
        for _ in range(len(self._managers)):
            manager = self._managers[0]
            try:
                response = await self._pool.request(manager, "POST", TARGET, body, self._headers, _ANSWER_S)
            except Disconnected as error:
                reason = str(error)
            else:
                reason = await self._judge(manager, response)
                if not reason:
                    return Outcome.ACCEPTED if response.status == _OK else Outcome.REFUSED
            reasons.append(f"{manager}: {reason}")
            self._managers.append(self._managers.pop(0))
        self._say(logging.WARNING, ("unheard",), "no manager takes heartbeats; trying on. " + "; ".join(reasons))
        return Outcome.UNHEARD

    async def _judge(self, manager: str, response: Response) -> str:
        """Act on an answer; return why another manager should be asked, or nothing."""
        if response.status >= _SERVER_ERRORS:
            return f"answered {response.status}"
        try:
            if response.status == _OK:
                accepted = msgspec.json.decode(response.body, type=_Accepted)
                self._accepted()
                if self._learn is not None:
                    table = bytes(accepted.access)
                    await self._learn(accepted.writer_epoch, b"" if table == _NULL else table)
                self._say(logging.INFO, ("accepted", manager), f"manager {manager} takes heartbeats")
            else:
                refused = msgspec.json.decode(response.body, type=_Refused)
                text = f"{response.status} {refused.code}: {refused.message[:500]}"
                self._say(logging.ERROR, ("refused", refused.code), f"manager {manager} refuses this broker: {text}")
        except msgspec.DecodeError as error:
            return f"answered {response.status} with something that cannot be read: {error}"
        return ""

    def _say(self, level: int, state: tuple[str, ...], text: str) -> None:
        """Log a change of state, and nothing twice."""
        if state != self._state:
            self._state = state
            logger.log(level, "%s", text)


def retry_s(failures: int) -> float:
    """Tell how long to wait after some rounds in which nobody answered."""
    return float(min(_RETRY_S_MAX, _RETRY_S_MIN * 2 ** min(failures - 1, 10)))
