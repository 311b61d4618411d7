"""Heartbeats to managers: id, addresses and replicas of this broker.

Any manager accepts them. The broker tries managers in turn until one answers, and starts with that one the next time.
Replicas do not depend on managers, whatever they answer. Only changes of the state are logged.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from enum import Enum
from ssl import SSLContext

import msgspec

from flotilla.access import system_token
from flotilla.net import Disconnected, Pool, Response
from flotilla_broker.api.descriptions import describe_broken, describe_broker, summarize
from flotilla_broker.server import Broker
from flotilla_server.access_table import TABLE_BYTES_MAX
from flotilla_server.broker_starts import StartReport, StartVerdict

logger = logging.getLogger(__name__)

TARGET = "/v1/control/heartbeat"
BODY_BYTES_MAX = 8 << 20
_RESPONSE_BYTES_MAX = TABLE_BYTES_MAX + (1 << 20)
_RESPONSE_S = 2.0
_RETRY_S_MIN = 0.1  # when everything starts, managers are available soon
_RETRY_S_MAX = 0.5
_HEADERS = (("content-type", "application/json"),)
_OK = 200
_NULL = b"null"
_SERVER_ERRORS = 500


class _AcceptedResponse(msgspec.Struct):
    status: str = "ok"
    writer_epoch: int = 0
    known: bool = True
    access: msgspec.Raw = msgspec.Raw(b"")  # the access table, if the version differs from the broker's
    start: str = StartVerdict.CONFIRMED  # managers of 0.2 do not check starts


class _Error(msgspec.Struct):
    code: str = ""
    message: str = ""


class Outcome(Enum):
    """Outcome of one heartbeat."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"  # other managers would reject it as well
    UNAVAILABLE = "unavailable"


def encode_heartbeat(broker: Broker) -> bytes:
    """Encode the heartbeat of a broker."""
    return msgspec.json.encode(
        {
            **describe_broker(broker),
            "start": report_start(broker),
            "disk": {**asdict(broker.log.disk_usage()), "segments_left": broker.log.space().segments_left},
            "replicas": [summarize(partition) for partition in broker.engine.partitions.values()],
            "broken": describe_broken(broker),
            **({} if broker.access is None else {"access": broker.access.version}),
        }
    )


def report_start(broker: Broker) -> StartReport:
    """Report the current start, so that managers can check it."""
    start = broker.identity.start
    return StartReport(
        number=start.number,
        token=start.token.hex(),
        lsn=start.lsn,
        recovered_lsn=broker.identity.recovered_lsn,
        is_confirmed=broker.identity.is_confirmed,
        is_copy=broker.identity.is_copy,
    )


def read_verdict(text: str) -> StartVerdict:
    """Decode a verdict. One of a later version confirms nothing."""
    try:
        return StartVerdict(text)
    except ValueError:
        return StartVerdict.UNCONFIRMED


def handle_verdict(broker: Broker, verdict: StartVerdict) -> None:
    """Act on a manager's verdict on the current start."""
    broker.on_manager_answer()
    match verdict:
        case StartVerdict.CONFIRMED:
            broker.is_registered = True
            broker.confirm_start()
        case StartVerdict.OLDER_COPY:
            broker.give_up_identity("log is an older copy: managers remember a later LSN of this broker")
        case StartVerdict.DUPLICATE:
            broker.stop_as_duplicate()
        case StartVerdict.UNCONFIRMED:
            pass  # the next heartbeat asks again


class HeartbeatSender:
    """Sends heartbeats until it is cancelled.

    `encode` encodes a heartbeat. `on_accepted` gets the verdict of a manager that accepted one. `on_access_table` gets
    the writer epoch and the access table of the response, if any. `secret` authenticates this broker as a server.
    """

    def __init__(
        self,
        managers: Sequence[str],
        encode: Callable[[], bytes],
        on_accepted: Callable[[StartVerdict], None],
        *,
        interval_s: float,
        tls: SSLContext | None = None,
        secret: bytes | None = None,
        on_access_table: Callable[[int, bytes], Awaitable[None]] | None = None,
    ) -> None:
        self._managers = list(managers)  # the one that answered last comes first
        self._encode = encode
        self._on_accepted = on_accepted
        self._interval_s = interval_s
        self._on_access_table = on_access_table
        shown = () if secret is None else (("authorization", f"Bearer {system_token(secret)}"),)
        self._headers = (*_HEADERS, *shown)
        self._pool = Pool(open_max=1, bytes_max=_RESPONSE_BYTES_MAX, tls=tls)
        self._state: tuple[str, ...] = ()

    @classmethod
    def of(cls, broker: Broker, tls: SSLContext | None = None) -> "HeartbeatSender":
        """Send heartbeats of a broker to the managers in its settings; `tls` verifies them."""

        def on_accepted(verdict: StartVerdict) -> None:
            handle_verdict(broker, verdict)

        async def on_access_table(writer_epoch: int, table: bytes) -> None:
            if broker.access is not None:
                is_stale = writer_epoch < broker.identity.writer_epoch  # of a replaced writer
                await broker.access.update(b"" if is_stale else table)

        settings = broker.settings
        return cls(
            settings.managers,
            lambda: encode_heartbeat(broker),
            on_accepted,
            interval_s=settings.manager_heartbeat_s,
            tls=tls,
            secret=settings.secret,
            on_access_table=on_access_table,
        )

    async def run(self) -> None:
        """Send heartbeats, one at a time."""
        failures = 0
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                outcome = await self._try_heartbeat()
                failures = failures + 1 if outcome is Outcome.UNAVAILABLE else 0
                took_s = loop.time() - began
                await asyncio.sleep(self._interval_s - took_s if not failures else retry_s(failures))
        finally:
            self._pool.close()

    async def _try_heartbeat(self) -> Outcome:
        try:
            return await self._send_heartbeat()
        except Exception as error:  # noqa: BLE001 - retried with the next heartbeat
            self._log_change(logging.ERROR, ("failed", type(error).__name__), f"heartbeat failed error={error!r}")
            return Outcome.UNAVAILABLE

    async def _send_heartbeat(self) -> Outcome:
        """Try managers in turn until one accepts or rejects the heartbeat."""
        body = self._encode()
        if len(body) > BODY_BYTES_MAX:
            self._log_change(
                logging.ERROR, ("too large",), f"heartbeat too large bytes={len(body)} limit={BODY_BYTES_MAX}"
            )
            return Outcome.REJECTED
        reasons = []
        for _ in range(len(self._managers)):
            manager = self._managers[0]
            try:
                response = await self._pool.request(manager, "POST", TARGET, body, self._headers, _RESPONSE_S)
            except Disconnected as error:
                reason = str(error)
            else:
                reason = await self._handle_response(manager, response)
                if not reason:
                    return Outcome.ACCEPTED if response.status == _OK else Outcome.REJECTED
            reasons.append(f"{manager}: {reason}")
            self._managers.append(self._managers.pop(0))
        self._log_change(logging.WARNING, ("unavailable",), f"managers unavailable, retrying errors={reasons}")
        return Outcome.UNAVAILABLE

    async def _handle_response(self, manager: str, response: Response) -> str:
        """Handle a response; return why to try another manager, or an empty string."""
        if response.status >= _SERVER_ERRORS:
            return f"status {response.status}"
        try:
            if response.status == _OK:
                decoded = msgspec.json.decode(response.body, type=_AcceptedResponse)
                self._on_accepted(read_verdict(decoded.start))
                if self._on_access_table is not None:
                    table = bytes(decoded.access)
                    await self._on_access_table(decoded.writer_epoch, b"" if table == _NULL else table)
                self._log_change(logging.INFO, ("accepted", manager), f"heartbeat accepted manager={manager}")
            else:
                error_body = msgspec.json.decode(response.body, type=_Error)
                text = f"{response.status} {error_body.code}: {error_body.message[:500]}"
                self._log_change(
                    logging.ERROR, ("rejected", error_body.code), f"heartbeat rejected manager={manager} error={text!r}"
                )
        except msgspec.DecodeError as error:
            return f"status {response.status} with an invalid body: {error}"
        return ""

    def _log_change(self, level: int, state: tuple[str, ...], text: str) -> None:
        """Log a change of state once."""
        if state != self._state:
            self._state = state
            logger.log(level, "%s", text)


def retry_s(failures: int) -> float:
    """Return the delay after `failures` attempts without an available manager."""
    return float(min(_RETRY_S_MAX, _RETRY_S_MIN * 2 ** min(failures - 1, 10)))
