"""How leaders are found, followed and left, on a fake network and in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import pytest

from flotilla.client.cluster import BrokerInfo, Cluster, Managers, Metadata, PartitionInfo, TopicInfo
from flotilla.client.config import ClientConfig, Route
from flotilla.client.errors import (
    DeliveryFailed,
    DeliveryUnknown,
    NotAllowed,
    Refused,
    ServerUnreachable,
    TopicMissing,
)
from flotilla.client.routing import Appended, Fetched, Router
from flotilla.net import Disconnected, Pool, Response, TimedOut
from flotilla.net.codes import CODES
from support import virtualtime

T = TypeVar("T")

MANAGER = "http://manager"
BROKERS = tuple(BrokerInfo(f"b{at}", f"http://b{at}") for at in range(3))
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
class World(Pool):
    """Servers that answer as they are told: with what comes next, and with the last of it from then on."""

    route: Route = Route.DIRECT
    topic: TopicInfo | None = field(default_factory=make_topic)
    token: str | None = None
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)  # names of servers, in order
    targets: list[str] = field(default_factory=list)
    metadata_works: bool = True

    def __post_init__(self) -> None:
        super().__init__()
        clock = asyncio.get_running_loop().time
        config = ClientConfig(urls=(MANAGER,), route=self.route, token=self.token)
        managers = Managers(config, self, clock)
        self.cluster = Cluster(managers)
        self.cluster.learn(self.metadata())
        self.router = Router(config, self.cluster, managers, self, self, clock)
        self.clock = clock

    def metadata(self) -> Metadata:
        return Metadata(1, "c", () if self.topic is None else (self.topic,), BROKERS)

    async def request(self, url: str, _: str, target: str, *__: object, timeout_s: float = 30.0) -> Response:
        await asyncio.sleep(0)
        if target.startswith("/v1/metadata"):
            if self.metadata_works:
                return Response(200, {}, msgspec.json.encode(self.metadata()))
            await asyncio.sleep(timeout_s)
            raise TimedOut("no answer", sent=True)
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

    async def append(self, seconds: float = 30.0) -> Appended:
        return await self.router.append(make_topic(), 0, b"batch", deadline=self.clock() + seconds)

    async def fetch(self, seconds: float = 30.0, wait_s: float = 1.0) -> Fetched:
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


def test_the_leader_is_asked_and_remembered() -> None:
    async def test() -> None:
        world = World(answers={"b0": [moved("b2")], "b2": [STORED]})
        assert await world.append() == Appended(7, 1)
        assert await world.append() == Appended(7, 1)
        assert world.asked == ["b0", "b2", "b2"]
        assert world.targets[0] == "/v1/append?topic=id:id-1&partition=0"

    play(test)


def test_without_a_leader_members_are_asked_in_turn() -> None:
    async def test() -> None:
        world = World(topic=make_topic(None))
        world.answers = {"b0": [refuse("no_leader")], "b1": [cut(sent=False)], "b2": [STORED]}
        await world.append()
        assert world.asked == ["b0", "b1", "b2"]

    play(test)


def test_a_lost_answer_leaves_doubt_that_only_success_ends() -> None:
    """An append ends well, failed, or unknown; after a lost answer no refusal proves that it was not stored."""

    async def test() -> None:
        world = World(answers={"b0": [cut()], "b1": [STORED]})
        assert (await world.append()).base_offset == 7
        world = World(answers={"b0": [cut()], "b1": [refuse("sequence_gap")]})
        with pytest.raises(DeliveryUnknown, match="because of sequence_gap"):
            await world.append()
        world = World(answers={"b0": [cut(sent=False)], "b1": [refuse("sequence_gap")]})
        with pytest.raises(DeliveryFailed, match="because of sequence_gap") as caught:
            await world.append()
        assert isinstance(caught.value.__cause__, Refused)
        world = World(answers={"b0": [refuse("unknown_outcome")], "b1": [refuse("too_large")]})
        with pytest.raises(DeliveryUnknown):
            await world.append()
        world = World(answers={"b0": [Response(200, {}, b"what?")]})
        with pytest.raises(DeliveryUnknown, match="cannot be read"):
            await world.append()

    play(test)


def test_time_ends_everything() -> None:
    async def test() -> None:
        for answer, kind in ((cut(sent=False), DeliveryFailed), (refuse("no_leader"), DeliveryFailed)):
            world = World(answers={broker.id: [answer] for broker in BROKERS})
            began = world.clock()
            with pytest.raises(kind):
                await world.append(seconds=7.0)
            assert world.clock() - began == pytest.approx(7.0)
        world = World(answers={broker.id: [hang] for broker in BROKERS})
        began = world.clock()
        with pytest.raises(DeliveryUnknown):
            await world.append(seconds=12.0)
        assert world.clock() - began == pytest.approx(12.0)
        assert world.asked == ["b0", "b1", "b2"]  # one that hangs is left alone after a while
        with pytest.raises(ServerUnreachable):
            await world.fetch(seconds=3.0)

    play(test)


def test_a_topic_that_is_gone_is_the_end_and_one_that_was_made_again_is_another_one() -> None:
    async def test() -> None:
        world = World(answers={"b0": [refuse("unknown_partition")]})
        world.topic = None
        with pytest.raises(DeliveryFailed) as caught:
            await world.append()
        assert isinstance(caught.value.__cause__, TopicMissing)
        world = World(answers={"b0": [refuse("unknown_partition")]})
        world.topic = make_topic(id_="id-2")
        with pytest.raises(TopicMissing, match="made again"):
            await world.fetch()

    play(test)


def test_a_partition_that_is_not_open_yet_is_waited_for() -> None:
    async def test() -> None:
        world = World(answers={"b0": [refuse("unknown_partition")], "b1": [refuse("unknown_partition"), STORED]})
        world.answers["b2"] = [refuse("unknown_partition")]
        await world.append()
        assert world.asked == ["b0", "b1", "b2", "b0", "b1"]

    play(test)


def test_other_members_are_asked_at_once_while_managers_are_away() -> None:
    """Produce and consume go on while managers are away."""

    async def test() -> None:
        world = World(answers={"b0": [cut()], "b1": [moved("b2")], "b2": [STORED]}, metadata_works=False)
        began = world.clock()
        await world.append()
        assert world.clock() - began < 0.1

    play(test)


def test_a_token_that_is_new_is_given_a_moment() -> None:
    async def test() -> None:
        world = World(answers={"b0": [*[refuse("unauthorized")] * 4, STORED]}, token="secret")  # noqa: S106 - an example
        await world.append()
        assert set(world.asked) == {"b0"}
        world = World(answers={"b0": [refuse("unauthorized")]}, token="secret")  # noqa: S106 - an example
        began = world.clock()
        with pytest.raises(NotAllowed):
            await world.fetch()
        assert 3.0 <= world.clock() - began < 4.0
        world = World(answers={"b0": [refuse("forbidden")]})
        with pytest.raises(DeliveryFailed, match="forbidden"):
            await world.append()
        assert world.asked == ["b0"]
        world = World(Route.GATEWAY, answers={"manager": [refuse("unauthorized"), STORED]}, token="secret")  # noqa: S106
        await world.append()
        world = World(Route.GATEWAY, answers={"manager": [refuse("unauthorized")]})
        with pytest.raises(NotAllowed):
            await world.fetch()
        assert world.asked == ["manager"], "without a token there is nothing to wait for"

    play(test)


def test_whoever_is_told_to_slow_down_waits_as_long_as_was_said_and_stays() -> None:
    async def test() -> None:
        busy = refuse("quota_exceeded")
        world = World(answers={"b0": [Response(429, {b"retry-after": b"4"}, busy.body), STORED]})
        began = world.clock()
        await world.append()
        assert world.asked == ["b0", "b0"]
        assert world.clock() - began == pytest.approx(4.0)

    play(test)


def test_direct_asks_brokers_only_and_gateway_managers_only() -> None:
    async def test() -> None:
        world = World(topic=make_topic())
        world.answers = {"b0": [STORED], "manager": [refuse("internal"), refuse("unavailable"), STORED]}
        world.cluster._brokers.clear()  # nobody is known: looked up, not asked elsewhere
        await world.append()
        assert world.asked == ["b0"]
        world = World(Route.GATEWAY, answers=world.answers)
        await world.append()
        assert world.asked == ["manager"] * 3

    play(test)


def test_auto_goes_through_managers_where_no_broker_can_be_reached_and_back_when_one_can() -> None:
    async def test() -> None:
        answers: dict[str, list[Answer]] = {broker.id: [cut(sent=False)] for broker in BROKERS}
        world = World(Route.AUTO, answers={**answers, "manager": [STORED]})
        await world.append()
        assert world.asked == ["b0", "b1", "b2", "manager"]
        await world.append()
        assert world.asked[4:] == ["manager"]
        await asyncio.sleep(31)
        world.asked.clear()
        await world.append()  # nobody waits for the look whether brokers are back
        await asyncio.sleep(1)
        assert sorted(world.asked) == ["b0", "b1", "b2", "manager"]
        world.answers.update({"b0": [STORED], "b1": [STORED], "b2": [STORED]})
        await asyncio.sleep(31)
        await world.append()
        await asyncio.sleep(1)
        world.asked.clear()
        await world.append()
        assert world.asked[0].startswith("b")
        world.router.close()

    play(test)


def test_auto_stays_direct_while_only_one_broker_is_away() -> None:
    async def test() -> None:
        world = World(Route.AUTO, topic=make_topic(partitions=8))
        world.answers = {"b0": [cut(sent=False)], "b1": [STORED], "b2": [STORED], "manager": [STORED]}
        deadline = world.clock() + 30
        appends = [world.router.append(make_topic(partitions=8), at, b"x", deadline=deadline) for at in range(8)]
        await asyncio.gather(*appends)
        assert "manager" not in world.asked

    play(test)


def test_a_fetch_tells_where_the_partition_begins_and_ends() -> None:
    async def test() -> None:
        headers = {b"flotilla-offset": b"5", b"flotilla-first-offset": b"2", b"flotilla-next-offset": b"9"}
        world = World(answers={"b0": [Response(200, headers, b"batches"), Response(200, {}, b"")]})
        assert await world.fetch() == Fetched(b"batches", 5, 2, 9)
        assert world.targets == ["/v1/fetch?topic=id:id-1&partition=0&offset=5&max_bytes=9&wait_ms=1000"]
        with pytest.raises(ServerUnreachable, match="cannot be read"):
            await world.fetch()

    play(test)


def test_who_knows_of_fewer_partitions_is_behind() -> None:
    async def test() -> None:
        world = World(topic=make_topic(partitions=1), answers={"b0": [refuse("unknown_partition"), STORED]})
        world.answers |= {"b1": [refuse("unknown_partition")], "b2": [refuse("unknown_partition")]}
        found = await world.router.append(make_topic(partitions=3), 2, b"x", deadline=world.clock() + 9)
        assert found.base_offset == 7

    play(test)
