"""Quotas: how much the holder of a token may ask of one server process.

Three limits, each of them optional: requests a second, bytes a second, and bytes that are under way. A rate is a bucket
that fills as time goes by and holds one second's worth. What is asked for is let in as long as the bucket is not in
debt, and may bring it into debt: so a request that is larger than the bucket is served too, and whoever sent it waits
until it is paid for. Over any time, no more is let in than what the bucket held and what flowed into it, and one
request.

Every request counts. Bytes count on the paths that records take, where bodies count as they are announced, or as they
arrive if nothing was announced, and answers as they are sent; only there is anybody refused for them. A consumer that
has read too much still shows its group that it lives.

A caller without any limit costs one look at an attribute. Accounts are kept while they say anything that a new one
would not: memory is bounded, and a restart forgives.
"""

import math
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from flotilla.access import Token
from flotilla.serving.asgi import Receive, Scope, Send, content_length
from flotilla.serving.errors import Refusal

BYTES, REQUESTS, IN_FLIGHT = "bytes_per_s", "requests_per_s", "in_flight_bytes"
QUOTAS = (BYTES, REQUESTS, IN_FLIGHT)
RETRY_AFTER_S_MAX = 60
HOLD_S = 0.5  # whoever comes again at once is answered no sooner
ACCOUNTS_MAX = 20_000
_SWEEP_AT_MIN = 256
_OK = 200
_WRITES = frozenset({"/v1/append", "/producer/produce"})
_READS = frozenset({"/v1/fetch", "/v1/tail", "/consumer/consume"})
_REPEATABLE = frozenset({"/v1/fetch"})  # a read that can be refused when it is done: it has moved nothing


class Bucket:
    """What is left of a rate. The clock is the caller's, in seconds; it starts full."""

    __slots__ = ("_at", "_level", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._level = rate
        self._at = now

    def level(self, now: float) -> float:
        """How much there is; less than nothing is a debt."""
        if now > self._at:
            self._level = min(self.rate, self._level + (now - self._at) * self.rate)
            self._at = now
        return self._level

    def debt_s(self, now: float) -> float:
        """How long it takes until there is no debt any more; 0 if there is none."""
        return max(0.0, -self.level(now) / self.rate)

    def take(self, amount: float, now: float) -> None:
        """Take something out, whether it is there or not."""
        self._level = self.level(now) - amount


class Account:
    """What one token has used of its limits."""

    __slots__ = ("buckets", "in_flight", "limits", "requests")

    def __init__(self, token: Token, now: float) -> None:
        self.limits = limits_of(token)
        rates = {BYTES: token.bytes_per_s, REQUESTS: token.requests_per_s}
        self.buckets = {name: Bucket(rate, now) for name, rate in rates.items() if rate is not None}
        self.in_flight = 0
        self.requests = 0  # under way

    def is_as_new(self, now: float) -> bool:
        """Tell whether it can be forgotten."""
        return not self.requests and all(bucket.level(now) >= bucket.rate for bucket in self.buckets.values())


def limits_of(token: Token) -> tuple[int | None, int | None, int | None]:
    """The limits of a token."""
    return token.bytes_per_s, token.requests_per_s, token.in_flight_bytes


class Quotas:
    """The accounts of all tokens that have limits. `clock` is in seconds, and never goes back.

    `hold_s` is how long a refusal is held back: bodies that nobody will read are not taken in meanwhile, so that a
    client that does not heed refusals costs others little.
    """

    def __init__(self, clock: Callable[[], float], hold_s: float = HOLD_S) -> None:
        self._clock = clock
        self.hold_s = hold_s
        self._accounts: dict[str, Account] = {}
        self._sweep_at = _SWEEP_AT_MIN
        self.refused = dict.fromkeys(QUOTAS, 0)

    def __len__(self) -> int:
        """How many accounts there are."""
        return len(self._accounts)

    @contextmanager
    def enter(self, token: Token, scope: Scope) -> Iterator["Meter"]:
        """Let a request in, and count for as long as the block runs; raises Refusal. The meter is `scope["meter"]`."""
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
        """Forget what a new account would say as well; and the oldest half of the others, if these are too many."""
        now = self._clock()
        self._accounts = {id_: account for id_, account in self._accounts.items() if not account.is_as_new(now)}
        if len(self._accounts) > ACCOUNTS_MAX // 2:
            self._accounts = dict(list(self._accounts.items())[-ACCOUNTS_MAX // 2 :])
        self._sweep_at = max(_SWEEP_AT_MIN, min(ACCOUNTS_MAX, 2 * len(self._accounts)))


class Meter:
    """Counts one request."""

    __slots__ = ("_account", "_clock", "_path", "_refused", "_size", "held")

    def __init__(
        self, account: Account, scope: Scope, clock: Callable[[], float], refused: MutableMapping[str, int]
    ) -> None:
        self._account = account
        self._clock = clock
        self._refused = refused
        self._path: str = scope["path"]
        self._size = content_length(scope)
        self.held = 0  # bytes that are under way

    @property
    def debt_s(self) -> float:
        """How long whoever streams should wait before sending more."""
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
        """Count a body: when somebody begins to read it, so that one that is refused unread costs nothing."""
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
        """Count an answer with records in it: at once if its size is announced, or else as it is sent."""
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
        """Count an answer before it is sent; others may have used up what there was when the request came."""
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
        """Count bytes that are under way. What is alone is let in however large: it would never be otherwise."""
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
