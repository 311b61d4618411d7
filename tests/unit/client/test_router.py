"""The router: how it finds and follows leaders, on a fake network and in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import pytest

from flotilla.client.cluster import BrokerInfo, Cluster, ManagerClient, Metadata, PartitionInfo, TopicInfo
from flotilla.client.config import ClientConfig, Route
from flotilla.client.errors import (
    DeliveryFailed,
    DeliveryUnknown,
    NotAllowed,
    Refused,
    ServerUnreachable,
    TopicMissing,
)
from flotilla.client.router import FetchResult, Router
from flotilla.net import Disconnected, Pool, Response, TimedOut
from flotilla.net.codes import CODES
from flotilla.protocol.appends import AppendResult
from support import virtualtime

T = TypeVar("T")

MANAGER = "http://manager"
BROKERS = tuple(BrokerInfo(f"b{at}", f"http://b{at}") for at in range(3))
INVALID_URLS = ("b0:9092", "ftp://b0", "http://[::1", "http://b0:port", "http://\u2460.example")
STORED = Response(200, {}, b'{"base_offset": 7, "append_time_ms": 1}')


def make_topic(leader: str | None = "b0", id_: str = "id-1", partitions: int = 1) -> TopicInfo:
    return TopicInfo(
        "t", id_, tuple(PartitionInfo(index, 1, ("b0", "b1", "b2"), leader) for index in range(partitions))
    )


def refuse(code: str, **details: object) -> Response:
    body = {"code": code, "message": f"because of {code}", "details": details}
    return Response(CODES[code].status, {}, msgspec.json.encode(body))


def moved(leader: str) -> Response:
    return refuse("not_leader", leader={"id": leader, "url": f"http://{leader}"})


Answer = Response | Disconnected | Callable[[], "Answer"]


@dataclass
class FakeNetwork(Pool):
    """Servers that return the configured responses in order, and the last one from then on."""

    route: Route = Route.DIRECT
    topic: TopicInfo | None = field(default_factory=make_topic)
    token: str | None = None
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)  # names of servers, in order
    targets: list[str] = field(default_factory=list)
    metadata_works: bool = True
    brokers: tuple[BrokerInfo, ...] = BROKERS

    def __post_init__(self) -> None:
        super().__init__()
        clock = asyncio.get_running_loop().time
        config = ClientConfig(urls=(MANAGER,), route=self.route, token=self.token)
        managers = ManagerClient(config, self, clock)
        self.cluster = Cluster(managers)
        self.cluster.update(self.metadata())
        self.router = Router(config, self.cluster, managers, self, self, clock)
        self.clock = clock

    def metadata(self) -> Metadata:
        return Metadata(1, "c", () if self.topic is None else (self.topic,), self.brokers)

    async def request(self, url: str, _: str, target: str, *__: object, timeout_s: float = 30.0) -> Response:
        await asyncio.sleep(0)
        if target.startswith("/v1/metadata"):
            if self.metadata_works:
                return Response(200, {}, msgspec.json.encode(self.metadata()))
            await asyncio.sleep(timeout_s)
            raise TimedOut("no answer", sent=True)
        if url in INVALID_URLS:
            return await super().request(url, "GET", target, timeout_s=timeout_s)
        name = url.removeprefix("http://")
        self.asked.append(name)
        self.targets.append(target)
        answers = self.answers[name]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        while not isinstance(answer, Response | Disconnected):
            answer = answer()
        if isinstance(answer, Disconnected):
            if isinstance(answer, TimedOut):
                await asyncio.sleep(timeout_s)
            raise answer
        return answer

    async def append(self, seconds: float = 30.0) -> AppendResult:
        return await self.router.append(make_topic(), 0, b"batch", deadline=self.clock() + seconds)

    async def fetch(self, seconds: float = 30.0, wait_s: float = 1.0) -> FetchResult:
        deadline = self.clock() + seconds
        return await self.router.fetch(make_topic(), 0, "offset=5", max_bytes=9, wait_s=wait_s, deadline=deadline)


def play(test: Callable[[], Awaitable[T]]) -> T:
    async def run() -> T:
        return await test()

    return virtualtime.run(run())


def cut(*, sent: bool = True) -> Disconnected:
    return Disconnected("cut", sent=sent)


def hang() -> Disconnected:
    return TimedOut("no answer", sent=True)


def test_router_sends_to_the_leader_and_remembers_it() -> None:
    async def test() -> None:
        network = FakeNetwork(answers={"b0": [moved("b2")], "b2": [STORED]})
        assert await network.append() == AppendResult(7, 1)
        assert await network.append() == AppendResult(7, 1)
        assert network.asked == ["b0", "b2", "b2"]
        assert network.targets[0] == "/v1/append?topic=id:id-1&partition=0"

    play(test)


def test_router_tries_replicas_in_turn_without_a_leader() -> None:
    async def test() -> None:
        network = FakeNetwork(topic=make_topic(None))
        network.answers = {"b0": [refuse("no_leader")], "b1": [cut(sent=False)], "b2": [STORED]}
        await network.append()
        assert network.asked == ["b0", "b1", "b2"]

    play(test)


def test_append_with_a_lost_response_ends_with_success_or_unknown() -> None:
    """After a lost response, no later rejection proves that the batch was not stored."""

    async def test() -> None:
        network = FakeNetwork(answers={"b0": [cut()], "b1": [STORED]})
        assert (await network.append()).base_offset == 7
        network = FakeNetwork(answers={"b0": [cut()], "b1": [refuse("sequence_gap")]})
        with pytest.raises(DeliveryUnknown, match="because of sequence_gap"):
            await network.append()
        network = FakeNetwork(answers={"b0": [cut(sent=False)], "b1": [refuse("sequence_gap")]})
        with pytest.raises(DeliveryFailed, match="because of sequence_gap") as caught:
            await network.append()
        assert isinstance(caught.value.__cause__, Refused)
        network = FakeNetwork(answers={"b0": [refuse("unknown_outcome")], "b1": [refuse("too_large")]})
        with pytest.raises(DeliveryUnknown):
            await network.append()
        network = FakeNetwork(answers={"b0": [Response(200, {}, b"what?")]})
        with pytest.raises(DeliveryUnknown, match="invalid response of a server"):
            await network.append()

    play(test)


def test_requests_end_at_the_deadline() -> None:
    async def test() -> None:
        for answer, kind in ((cut(sent=False), DeliveryFailed), (refuse("no_leader"), DeliveryFailed)):
            network = FakeNetwork(answers={broker.id: [answer] for broker in BROKERS})
            began = network.clock()
            with pytest.raises(kind):
                await network.append(seconds=7.0)
            assert network.clock() - began == pytest.approx(7.0)
        network = FakeNetwork(answers={broker.id: [hang] for broker in BROKERS})
        began = network.clock()
        with pytest.raises(DeliveryUnknown):
            await network.append(seconds=12.0)
        assert network.clock() - began == pytest.approx(12.0)
        assert network.asked == ["b0", "b1", "b2"]  # one that hangs is left alone after a while
        with pytest.raises(ServerUnreachable):
            await network.fetch(seconds=3.0)

    play(test)


def test_deleted_or_recreated_topic_raises_topic_missing() -> None:
    async def test() -> None:
        network = FakeNetwork(answers={"b0": [refuse("unknown_partition")]})
        network.topic = None
        with pytest.raises(DeliveryFailed) as caught:
            await network.append()
        assert isinstance(caught.value.__cause__, TopicMissing)
        network = FakeNetwork(answers={"b0": [refuse("unknown_partition")]})
        network.topic = make_topic(id_="id-2")
        with pytest.raises(TopicMissing, match="created again"):
            await network.fetch()

    play(test)


def test_router_retries_while_a_partition_is_not_open_yet() -> None:
    async def test() -> None:
        network = FakeNetwork(
            answers={"b0": [refuse("unknown_partition")], "b1": [refuse("unknown_partition"), STORED]}
        )
        network.answers["b2"] = [refuse("unknown_partition")]
        await network.append()
        assert network.asked == ["b0", "b1", "b2", "b0", "b1"]

    play(test)


def test_router_tries_other_replicas_while_managers_are_unavailable() -> None:
    """Produce and consume continue without managers."""

    async def test() -> None:
        network = FakeNetwork(answers={"b0": [cut()], "b1": [moved("b2")], "b2": [STORED]}, metadata_works=False)
        began = network.clock()
        await network.append()
        assert network.clock() - began < 0.1

    play(test)


def test_router_retries_with_a_new_token() -> None:
    async def test() -> None:
        network = FakeNetwork(answers={"b0": [*[refuse("unauthorized")] * 4, STORED]}, token="secret")  # noqa: S106 - an example
        await network.append()
        assert set(network.asked) == {"b0"}
        network = FakeNetwork(answers={"b0": [refuse("unauthorized")]}, token="secret")  # noqa: S106 - an example
        began = network.clock()
        with pytest.raises(NotAllowed):
            await network.fetch()
        assert 3.0 <= network.clock() - began < 4.0
        network = FakeNetwork(answers={"b0": [refuse("forbidden")]})
        with pytest.raises(DeliveryFailed, match="forbidden"):
            await network.append()
        assert network.asked == ["b0"]
        network = FakeNetwork(Route.GATEWAY, answers={"manager": [refuse("unauthorized"), STORED]}, token="secret")  # noqa: S106
        await network.append()
        network = FakeNetwork(Route.GATEWAY, answers={"manager": [refuse("unauthorized")]})
        with pytest.raises(NotAllowed):
            await network.fetch()
        assert network.asked == ["manager"], "without a token there is nothing to wait for"

    play(test)


def test_router_waits_for_retry_after_and_keeps_the_leader() -> None:
    async def test() -> None:
        busy = refuse("quota_exceeded")
        network = FakeNetwork(answers={"b0": [Response(429, {b"retry-after": b"4"}, busy.body), STORED]})
        began = network.clock()
        await network.append()
        assert network.asked == ["b0", "b0"]
        assert network.clock() - began == pytest.approx(4.0)

    play(test)


def test_direct_route_uses_only_brokers_and_gateway_only_managers() -> None:
    async def test() -> None:
        network = FakeNetwork(topic=make_topic())
        network.answers = {"b0": [STORED], "manager": [refuse("internal"), refuse("unavailable"), STORED]}
        network.cluster._brokers.clear()  # no broker is known: the metadata is refreshed, and no manager is used
        await network.append()
        assert network.asked == ["b0"]
        network = FakeNetwork(Route.GATEWAY, answers=network.answers)
        await network.append()
        assert network.asked == ["manager"] * 3

    play(test)


def test_auto_route_uses_managers_while_no_broker_is_reachable() -> None:
    async def test() -> None:
        answers: dict[str, list[Answer]] = {broker.id: [cut(sent=False)] for broker in BROKERS}
        network = FakeNetwork(Route.AUTO, answers={**answers, "manager": [STORED]})
        await network.append()
        assert network.asked == ["b0", "b1", "b2", "manager"]
        await network.append()
        assert network.asked[4:] == ["manager"]
        await asyncio.sleep(31)
        network.asked.clear()
        await network.append()  # the probe of brokers runs in the background
        await asyncio.sleep(1)
        assert sorted(network.asked) == ["b0", "b1", "b2", "manager"]
        network.answers.update({"b0": [STORED], "b1": [STORED], "b2": [STORED]})
        await asyncio.sleep(31)
        await network.append()
        await asyncio.sleep(1)
        network.asked.clear()
        await network.append()
        assert network.asked[0].startswith("b")
        network.router.close()

    play(test)


@pytest.mark.parametrize("url", INVALID_URLS)
def test_broker_with_an_invalid_url_is_unreachable(url: str) -> None:
    """The URL comes from a server: requests, and the probe of brokers, try the others."""

    async def test() -> None:
        brokers = (BrokerInfo("b0", url), *BROKERS[1:])
        network = FakeNetwork(Route.AUTO, brokers=brokers, answers={"manager": [STORED]})
        network.answers |= {"b1": [cut(sent=False)], "b2": [cut(sent=False)]}
        await network.append()
        assert network.asked == ["b1", "b2", "manager"]
        network.answers |= {"b1": [STORED], "b2": [STORED]}
        await asyncio.sleep(31)
        await network.append()  # the probe runs in the background
        await asyncio.sleep(1)
        network.asked.clear()
        await network.append()
        assert network.asked in (["b1"], ["b2"])

    play(test)


@pytest.mark.parametrize("url", INVALID_URLS)
def test_request_without_a_valid_broker_url_ends_at_the_deadline(url: str) -> None:
    async def test() -> None:
        network = FakeNetwork(brokers=tuple(BrokerInfo(one.id, url) for one in BROKERS))
        with pytest.raises(DeliveryFailed, match="does not answer"):
            await network.append(seconds=3.0)
        with pytest.raises(ServerUnreachable, match="does not answer"):
            await network.fetch(seconds=3.0)

    play(test)


def test_auto_route_stays_direct_while_one_broker_is_unreachable() -> None:
    async def test() -> None:
        network = FakeNetwork(Route.AUTO, topic=make_topic(partitions=8))
        network.answers = {"b0": [cut(sent=False)], "b1": [STORED], "b2": [STORED], "manager": [STORED]}
        deadline = network.clock() + 30
        appends = [network.router.append(make_topic(partitions=8), at, b"x", deadline=deadline) for at in range(8)]
        await asyncio.gather(*appends)
        assert "manager" not in network.asked

    play(test)


def test_fetch_returns_first_and_next_offset() -> None:
    async def test() -> None:
        headers = {b"flotilla-offset": b"5", b"flotilla-first-offset": b"2", b"flotilla-next-offset": b"9"}
        network = FakeNetwork(answers={"b0": [Response(200, headers, b"batches"), Response(200, {}, b"")]})
        assert await network.fetch() == FetchResult(b"batches", 5, 2, 9)
        assert network.targets == ["/v1/fetch?topic=id:id-1&partition=0&offset=5&max_bytes=9&wait_ms=1000"]
        with pytest.raises(ServerUnreachable, match="invalid response of a server"):
            await network.fetch()

    play(test)


def test_metadata_with_fewer_partitions_is_ignored() -> None:
    async def test() -> None:
        network = FakeNetwork(topic=make_topic(partitions=1), answers={"b0": [refuse("unknown_partition"), STORED]})
        network.answers |= {"b1": [refuse("unknown_partition")], "b2": [refuse("unknown_partition")]}
        found = await network.router.append(make_topic(partitions=3), 2, b"x", deadline=network.clock() + 9)
        assert found.base_offset == 7

    play(test)
