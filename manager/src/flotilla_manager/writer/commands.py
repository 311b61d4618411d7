"""Commands to brokers, sent over HTTP. Each carries the writer's epoch and is idempotent."""

import asyncio
from itertools import groupby
from typing import Any

import msgspec

from flotilla.net import Disconnected, Pool, Response
from flotilla.protocol.errors import Refusal
from flotilla_manager.model import Broker
from flotilla_manager.planning import Campaign, Command, DeleteReplica, PutReplica, TransferLeadership, UpdatePeers
from flotilla_manager.routing.verdicts import refusal_in

_TIMEOUT_S = 5.0
_CONCURRENCY_MAX = 32
_OK = 200
_NOT_FOUND = 404
_UNAUTHORIZED = {401, 403}


class CommandFailed(Exception):
    """A broker rejected a command or did not respond. The command can be sent again."""


class BrokerUnreachable(CommandFailed):
    """A broker does not respond."""


class StaleWriterRejected(CommandFailed):
    """A broker has received commands of a later writer."""


class Commands:
    """Sends commands to brokers."""

    def __init__(self, pool: Pool, headers: tuple[tuple[str, str], ...] = ()) -> None:
        """`headers` authenticate this manager to brokers."""
        self._pool = pool
        self._headers = headers

    async def send(self, command: Command, broker: Broker, epoch: int, cluster_id: str) -> None:
        """Send one command. Raises CommandFailed."""
        method, target, body = to_request(command, epoch, cluster_id)
        try:
            response = await self._pool.request(
                broker.url,
                method,
                target,
                msgspec.json.encode(body) if body is not None else b"",
                (("content-type", "application/json"), *self._headers),
                timeout_s=_TIMEOUT_S,
            )
        except (Disconnected, TimeoutError, OSError, ValueError) as error:  # ValueError: invalid address
            raise BrokerUnreachable(f"broker {broker.label} at {broker.url} is unreachable: {error}") from error
        self._check(command, broker, response)

    def _check(self, command: Command, broker: Broker, response: Response) -> None:
        if response.status == _OK or (isinstance(command, DeleteReplica) and response.status == _NOT_FOUND):
            return
        refusal = refusal_in(response.body)
        kind = StaleWriterRejected if refusal.code == "stale_writer" else CommandFailed
        raise kind(f"broker {broker.label} rejected {type(command).__name__}: {refusal.code}: {refusal}")

    async def describe(self, url: str, *, is_ours: bool) -> dict[str, Any]:
        """Get a broker's description. Raises CommandFailed. Credentials are sent only to registered brokers."""
        headers = self._headers if is_ours else ()
        try:
            response = await self._pool.request(url, "GET", "/v1/broker", headers=headers, timeout_s=_TIMEOUT_S)
            found = response.json() if response.status == _OK else None
        except (Disconnected, TimeoutError, OSError, ValueError) as error:
            raise CommandFailed(f"no broker is reachable at {url}: {error}") from error
        if response.status in _UNAUTHORIZED:
            raise CommandFailed(f"the broker at {url} is not registered: set its --managers, and it registers itself")
        if not isinstance(found, dict) or not isinstance(found.get("id"), str):
            raise CommandFailed(f"the server at {url} is not a broker")
        return found

    async def send_all(
        self, commands: list[tuple[Command, Broker]], epoch: int, cluster_id: str
    ) -> list[tuple[Command, CommandFailed | None]]:
        """Send commands to all brokers concurrently; return the result of each.

        To one broker, kinds are sent in order, and commands of one kind concurrently.
        """
        by_broker: dict[str, list[tuple[Command, Broker]]] = {}
        for command, broker in commands:
            by_broker.setdefault(broker.id, []).append((command, broker))
        results = await asyncio.gather(
            *(self._send_to_broker(theirs, epoch, cluster_id) for theirs in by_broker.values())
        )
        return [pair for theirs in results for pair in theirs]

    async def _send_to_broker(
        self, commands: list[tuple[Command, Broker]], epoch: int, cluster_id: str
    ) -> list[tuple[Command, CommandFailed | None]]:
        """Send commands to one broker. Those of one kind share flushes of its log."""
        results: list[tuple[Command, CommandFailed | None]] = []
        for _, alike in groupby(commands, key=lambda pair: type(pair[0])):
            todo = list(alike)
            for start in range(0, len(todo), _CONCURRENCY_MAX):
                some = todo[start : start + _CONCURRENCY_MAX]
                ends = await asyncio.gather(
                    *(self._try(command, broker, epoch, cluster_id) for command, broker in some)
                )
                results += zip((command for command, _ in some), ends, strict=True)
                if ends and all(isinstance(end, BrokerUnreachable) for end in ends):
                    return results + [(command, ends[0]) for command, _ in commands[len(results) :]]
        return results

    async def _try(self, command: Command, broker: Broker, epoch: int, cluster_id: str) -> CommandFailed | None:
        try:
            await self.send(command, broker, epoch, cluster_id)
        except CommandFailed as error:
            return error
        return None


def to_request(command: Command, epoch: int, cluster_id: str) -> tuple[str, str, dict[str, Any] | None]:
    """Encode a command: method, target and body."""
    common = {"writer_epoch": epoch, "cluster_id": cluster_id}
    if isinstance(command, UpdatePeers):
        brokers = {
            one.broker: {
                "host": one.host,
                "port": one.port,
                "peer_host": one.peer_host,
                "peer_port": one.peer_port,
                "tls": one.tls,
                **({"name": one.name} if one.name else {}),
            }
            for one in command.peers
        }
        return "PUT", "/v1/brokers", {**common, "brokers": brokers}
    target = f"/v1/replicas/{command.topic_id}/{command.partition}/{command.epoch}"
    if isinstance(command, PutReplica):
        limits = {"retention_ms": command.retention_ms, "retention_bytes": command.retention_bytes}
        if command.batch_bytes_max is not None:  # brokers of 0.1 do not know this field
            limits["batch_bytes_max"] = command.batch_bytes_max
        return "PUT", target, {**common, "topic": command.topic, "members": list(command.members), **limits}
    if isinstance(command, DeleteReplica):
        return "DELETE", f"{target}?writer_epoch={epoch}&cluster_id={cluster_id}", None
    # Brokers of 0.2 know only hand-over and stand; brokers of 0.3 serve them as aliases of transfer-leadership and
    # campaign. Call the new names from 0.4 on.
    if isinstance(command, TransferLeadership):
        return "POST", f"{target}/hand-over", {**common, "target": command.target}
    assert isinstance(command, Campaign)  # noqa: S101 - exhaustive
    return "POST", f"{target}/stand", common


def to_refusal(error: CommandFailed) -> Refusal:
    """Translate a failed command into an error response."""
    return Refusal("unavailable", f"A broker did not execute a command: {error}. Try again.")
