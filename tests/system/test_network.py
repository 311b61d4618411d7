"""Real brokers on a network that is cut, frozen and slow, with a proxy between each pair."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from support.cluster import BrokerProcess, Cluster, wait_until
from support.load import Load
from support.proxy import Proxy

QUICK = ("--heartbeat-s", "0.1", "--election-s-min", "0.5", "--election-s-max", "1.0")


class Wires:
    """A proxy for each ordered pair of brokers; the one with the smaller id connects."""

    def __init__(self) -> None:
        self._proxies: dict[tuple[str, str], Proxy] = {}

    def address(self, broker: BrokerProcess, to: BrokerProcess) -> int:
        """Return the address at which `broker` reaches `to`."""
        if broker is to:
            return to.peer_port
        if (broker.id, to.id) not in self._proxies:
            self._proxies[broker.id, to.id] = Proxy(to.peer_port)
        return self._proxies[broker.id, to.id].port

    def between(self, one: BrokerProcess, other: BrokerProcess) -> Proxy:
        """Return the proxy of their connection."""
        return self._proxies[min(one.id, other.id), max(one.id, other.id)]

    def of(self, broker: BrokerProcess) -> list[Proxy]:
        """Return all proxies of a broker's connections."""
        return [proxy for pair, proxy in self._proxies.items() if broker.id in pair]

    def heal(self) -> None:
        """Forward everything again."""
        for proxy in self._proxies.values():
            proxy.heal()

    def close(self) -> None:
        """Stop all proxies."""
        for proxy in self._proxies.values():
            proxy.close()


@contextmanager
def wired(folder: Path) -> Iterator[tuple[Cluster, Wires]]:
    """Start three brokers with proxies between them."""
    wires = Wires()
    with Cluster(folder, flags=QUICK, address=wires.address) as cluster:
        try:
            cluster.create("t")
            cluster.leader()
            yield cluster, wires
        finally:
            wires.close()


@pytest.mark.parametrize("fault", ["cut", "freeze"])
def test_isolated_leader_is_replaced_and_nothing_is_lost(tmp_path: Path, fault: str) -> None:
    """Guarantee 5. The old leader steps down, and follows after it is reconnected."""
    with wired(tmp_path) as (cluster, wires):
        load = Load("t", 1, cluster.brokers, random.Random(fault))
        old = cluster.leader()

        def isolate() -> None:
            for proxy in wires.of(old):
                getattr(proxy, fault)()
            others = [broker for broker in cluster.brokers if broker is not old]
            wait_until("a new leader", lambda: any(cluster.describe(b).get("settled") for b in others))
            wait_until("the old leader to step down", lambda: cluster.describe(old).get("role") != "leader")
            load.wait_progress(50)
            wires.heal()
            wait_until(
                "the old leader to follow", lambda: cluster.describe(old).get("leader") in {b.id for b in others}
            )

        load.run_while(isolate)
        cluster.wait_agreed()
        assert load.violations() == []


def test_repeatedly_cut_connections_lose_nothing(tmp_path: Path) -> None:
    with wired(tmp_path) as (cluster, wires):
        rng = random.Random(7)
        load = Load("t", 1, cluster.brokers, rng)

        def cut() -> None:
            for _ in range(25):
                one, other = rng.sample(cluster.brokers, 2)
                wires.between(one, other).cut()
                time.sleep(rng.random() * 0.2)  # for a random time
                wires.heal()
                load.wait_progress(5)

        load.run_while(cut)
        cluster.wait_agreed()
        assert load.violations() == []


def test_slow_follower_costs_the_leader_little_memory(tmp_path: Path) -> None:
    """Unacknowledged messages are bounded; other entries are read from disk when the follower is ready."""
    with wired(tmp_path) as (cluster, wires):
        leader = cluster.leader()
        slow = next(broker for broker in cluster.brokers if broker is not leader)
        load = Load("t", 1, cluster.brokers, random.Random(8), pause_s=0)
        for producer in load.producers:
            producer.records = 2000
            producer.padding = 200
        process = psutil.Process(leader.pid)
        peak = 0

        def press() -> None:
            nonlocal peak
            load.wait_progress(1)
            wires.between(leader, slow).throttle(50_000)
            before = process.memory_info().rss
            until = load.acknowledged + 400_000  # about 80 MB, of which the slow one gets a fraction
            while load.acknowledged < until:
                peak = max(peak, process.memory_info().rss - before)
                time.sleep(0.05)
            wires.heal()

        load.run_while(press)
        assert peak < 64 << 20
        cluster.wait_agreed(timeout_s=60)
        assert load.violations() == []
