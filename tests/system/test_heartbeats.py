"""Heartbeats of real brokers to managers: a broker is active for three intervals, whatever its interval is."""

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from support.cluster import wait_until
from support.fleet import Fleet

INTERVAL_S = 4.0  # above the 3 seconds after which a broker with the default interval is inactive
SLACK_S = 10.0  # for a loaded machine


def state(fleet: Fleet) -> dict[str, Any]:
    response = fleet.client.get("/v1/control/state")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def active(found: dict[str, Any]) -> dict[str, bool]:
    return {one["id"]: one["active"] for one in found["brokers"]}


def test_broker_with_a_long_interval_is_active_while_it_lives_and_inactive_after_a_kill(tmp_path: Path) -> None:
    flags = ["--manager-heartbeat-s", str(INTERVAL_S)]
    with Fleet(tmp_path, brokers=2, readers=1, broker_flags=flags) as fleet:
        first, second = (broker.id for broker in fleet.brokers)
        began = time.monotonic()
        ages = {first: [0.0], second: [0.0]}

        def heartbeats() -> bool:
            """Return whether both brokers have sent two heartbeats since the start."""
            found = state(fleet)
            assert active(found) == {first: True, second: True}, f"after {time.monotonic() - began:.1f} s"
            for id_, report in found["reports"].items():
                assert report["heartbeat_limit_s"] == 3 * INTERVAL_S
                ages[id_].append(report["seconds_ago"])
            return all(sum(b < a for a, b in pairwise(of)) >= 2 for of in ages.values())

        wait_until("two heartbeats of both brokers", heartbeats, 4 * INTERVAL_S + SLACK_S)
        assert max(max(of) for of in ages.values()) > 3.0, "longer than the limit of the default interval"

        fleet.brokers[0].kill()
        killed = time.monotonic()
        wait_until(
            "the broker that was killed to be inactive",
            lambda: active(state(fleet)) == {first: False, second: True},
            3 * INTERVAL_S + SLACK_S,
        )
        assert time.monotonic() - killed > INTERVAL_S, "the broker may have sent a heartbeat just before"

        fleet.brokers[0].start()
        wait_until("the broker to be active again", lambda: active(state(fleet)) == {first: True, second: True})


def test_new_writer_keeps_brokers_with_a_long_interval_active(tmp_path: Path) -> None:
    """It has no heartbeat of them for longer than it waits for brokers with the default interval."""
    with Fleet(tmp_path, brokers=1, readers=1, broker_flags=["--manager-heartbeat-s", "10"]) as fleet:
        (broker,) = fleet.brokers
        epoch = state(fleet)["writer_epoch"]
        fleet.writer.kill()
        fleet.writer.start()

        def is_heard() -> bool:
            found = state(fleet)
            assert active(found) == {broker.id: True}
            return found["writer_epoch"] > epoch and broker.id in found["reports"]

        wait_until("a heartbeat to the new writer", is_heard)
        assert "marked inactive" not in fleet.writer.log()
