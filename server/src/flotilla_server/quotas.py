"""Quotas: limits of a token, per server process.

Three optional limits: requests per second, bytes per second, and bytes in flight. A rate is a token bucket that holds
one second's worth. A request is admitted while the bucket is not negative, and may make it negative: so a request
larger than the bucket is served, and the next ones wait. Over any period, at most the content of the bucket, its inflow
and one request are admitted.

Every request counts. Bytes count only on the paths of records: bodies by their content length, or as they arrive
without one; responses as they are sent. Only these paths are rejected for bytes, so that a consumer above its quota can
still send heartbeats to its group.

A caller without limits costs one attribute lookup. Accounts that equal a new one are removed: memory is bounded, and a
restart resets all quotas.
"""

import math
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from flotilla.access import Token
from flotilla.protocol.errors import Refusal
from flotilla_server.asgi import Receive, Scope, Send, content_length

BYTES, REQUESTS, IN_FLIGHT = "bytes_per_s", "requests_per_s", "in_flight_bytes"
QUOTAS = (BYTES, REQUESTS, IN_FLIGHT)
RETRY_AFTER_S_MAX = 60
HOLD_S = 0.5  # delay of the error response to clients that retry at once
ACCOUNTS_MAX = 20_000
_SWEEP_AT_MIN = 256
_OK = 200
_WRITES = frozenset({"/v1/append", "/producer/produce"})
_READS = frozenset({"/v1/fetch", "/v1/tail", "/consumer/consume"})
_REPEATABLE = frozenset({"/v1/fetch"})  # a read that can be rejected afterwards: it changes no position


class Bucket:
    """A token bucket. It starts full; the caller passes the time in seconds."""

    __slots__ = ("_at", "_level", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._level = rate
        self._at = now

    def level(self, now: float) -> float:
        """Return the content; negative: a debt."""
        if now > self._at:
            self._level = min(self.rate, self._level + (now - self._at) * self.rate)
            self._at = now
        return self._level

    def debt_s(self, now: float) -> float:
        """Return the time until the debt is paid, in seconds."""
        return max(0.0, -self.level(now) / self.rate)

    def take(self, amount: float, now: float) -> None:
        """Subtract an amount; the content may become negative."""
        self._level = self.level(now) - amount


class Account:
    """The usage of one token."""

    __slots__ = ("buckets", "in_flight", "limits", "requests")

    def __init__(self, token: Token, now: float) -> None:
        self.limits = limits_of(token)
        rates = {BYTES: token.bytes_per_s, REQUESTS: token.requests_per_s}
        self.buckets = {name: Bucket(rate, now) for name, rate in rates.items() if rate is not None}
        self.in_flight = 0
        self.requests = 0  # in progress

    def is_as_new(self, now: float) -> bool:
        """Whether it equals a new account, and can be removed."""
        return not self.requests and all(bucket.level(now) >= bucket.rate for bucket in self.buckets.values())


def limits_of(token: Token) -> tuple[int | None, int | None, int | None]:
    """Return the limits of a token."""
    return token.bytes_per_s, token.requests_per_s, token.in_flight_bytes


class Quotas:
    """The accounts of all tokens with limits. `clock` is monotonic, in seconds.

    Rejections are delayed by `hold_s`, and bodies are not read meanwhile, so that a client that ignores them costs
    little.
    """

    def __init__(self, clock: Callable[[], float], hold_s: float = HOLD_S) -> None:
        self._clock = clock
        self.hold_s = hold_s
        self._accounts: dict[str, Account] = {}
        self._sweep_at = _SWEEP_AT_MIN
        self.refused = dict.fromkeys(QUOTAS, 0)

    def __len__(self) -> int:
        """Number of accounts."""
        return len(self._accounts)

    @contextmanager
    def enter(self, token: Token, scope: Scope) -> Iterator["Meter"]:
        """Admit a request, and count it while the block runs; raises Refusal. The meter is `scope["meter"]`."""
        account = self._account(token)
        meter = scope["meter"] = Meter(account, scope, self._clock, self.refused)
        meter.admit()
        account.requests += 1
        try:
            yield meter
        finally:
            account.requests -= 1
            account.in_flight -= meter.held

    def _account(self, token: Token) -> Account:
        account = self._accounts.get(token.id)
        if account is None or account.limits != limits_of(token):
            if len(self._accounts) >= self._sweep_at:
                self._sweep()
            account = self._accounts[token.id] = Account(token, self._clock())
        return account

    def _sweep(self) -> None:
        """Remove accounts that equal a new one, and the oldest half if there are still too many."""
        now = self._clock()
        self._accounts = {id_: account for id_, account in self._accounts.items() if not account.is_as_new(now)}
        if len(self._accounts) > ACCOUNTS_MAX // 2:
            self._accounts = dict(list(self._accounts.items())[-ACCOUNTS_MAX // 2 :])
        self._sweep_at = max(_SWEEP_AT_MIN, min(ACCOUNTS_MAX, 2 * len(self._accounts)))


class Meter:
    """Meters one request."""

    __slots__ = ("_account", "_clock", "_path", "_refused", "_size", "held")

    def __init__(
        self, account: Account, scope: Scope, clock: Callable[[], float], refused: MutableMapping[str, int]
    ) -> None:
        self._account = account
        self._clock = clock
        self._refused = refused
        self._path: str = scope["path"]
        self._size = content_length(scope)
        self.held = 0  # bytes in flight

    @property
    def debt_s(self) -> float:
        """How long a stream should wait before it sends more."""
        bucket = self._account.buckets.get(BYTES)
        return 0.0 if bucket is None else bucket.debt_s(self._clock())

    def admit(self) -> None:
        """Count a request; raises Refusal."""
        self._check(REQUESTS)
        if self._path in _WRITES or self._path in _READS:
            self._check(BYTES)
        bucket = self._account.buckets.get(REQUESTS)
        if bucket is not None:
            bucket.take(1, self._clock())

    def receiving(self, receive: Receive) -> Receive:
        """Count a body when it is first read, so that a request rejected before that costs nothing."""
        if self._path not in _WRITES:
            return receive
        is_announced = self._size is not None
        begun = False

        async def metered() -> MutableMapping[str, Any]:
            nonlocal begun
            if not begun:
                begun = True
                self._check(BYTES)
                self._hold(self._size or 0)
                self._charge(self._size or 0)
            event = await receive()
            if not is_announced:
                size = len(event.get("body", b""))
                self._hold(size)
                self._charge(size)
            return event

        return metered

    def sending(self, send: Send) -> Send:
        """Count a response with records: by its content length, or as it is sent."""
        if self._path not in _READS:
            return send
        is_streamed = False

        async def metered(message: MutableMapping[str, Any]) -> None:
            nonlocal is_streamed
            if message["type"] == "http.response.start":
                size = _announced(message)
                is_streamed = size is None
                if size and message["status"] == _OK:
                    self._answer(size)
            elif is_streamed:
                self._charge(len(message.get("body", b"")))
            await send(message)

        return metered

    def _answer(self, size: int) -> None:
        """Count a response before it is sent; other requests may have used up the quota meanwhile."""
        if self._path in _REPEATABLE:
            self._check(BYTES)
            self._hold(size)
        self._charge(size)

    def _check(self, quota: str) -> None:
        bucket = self._account.buckets.get(quota)
        if bucket is not None and (debt_s := bucket.debt_s(self._clock())) > 0:
            raise self._refuse(quota, int(bucket.rate), debt_s)

    def _charge(self, size: int) -> None:
        bucket = self._account.buckets.get(BYTES)
        if bucket is not None:
            bucket.take(size, self._clock())

    def _hold(self, size: int) -> None:
        """Count bytes in flight. A single request is admitted whatever its size: otherwise it could never succeed."""
        _, _, limit = self._account.limits
        others = self._account.in_flight - self.held
        if limit is not None and others and self._account.in_flight + size > limit:
            raise self._refuse(IN_FLIGHT, limit, 0)
        self._account.in_flight += size
        self.held += size

    def _refuse(self, quota: str, limit: int, debt_s: float) -> Refusal:
        self._refused[quota] += 1
        after_s = max(1, min(RETRY_AFTER_S_MAX, math.ceil(debt_s)))
        return Refusal(
            "quota_exceeded",
            f"the token's quota of {limit} {quota} is used up; try again in {after_s} s",
            quota=quota,
            limit=limit,
            retry_after_s=after_s,
        )


def _announced(message: MutableMapping[str, Any]) -> int | None:
    for name, value in message.get("headers", ()):
        if name == b"content-length":
            return int(value)
    return None
