"""What the guards are for: the same faults with stock pysyncobj, and with the guards."""

from collections import Counter

import pytest

import flotilla_broker.partition.partition
from sim.broker import Codec
from sim.simulation import Simulation
from sim.stock import StockGroup

SEEDS = range(16)
KIND = Codec(lambda message: message, lambda message: message, kind_disk=True)


def run_all() -> Counter[str]:
    """Run all seeds with mild faults; count the results."""
    ends: Counter[str] = Counter()
    for seed in SEEDS:
        try:
            Simulation(seed, 3, codec=KIND).run(40.0)
        except Exception as error:  # noqa: BLE001 - the stock core ends in many ways
            ends[_kind(str(error))] += 1
        else:
            ends["well"] += 1
    return ends


def _kind(text: str) -> str:
    if "cannot be truncated" in text or "was acknowledged" in text or "committed another" in text:
        return "lost"
    return "stuck" if "do not agree" in text else text


def test_stock_core_loses_acknowledged_records_and_gets_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without guards, although no power is lost, nothing is trimmed, and no message is lost or reordered."""
    monkeypatch.setattr(flotilla_broker.partition.partition, "RaftGroup", StockGroup)
    ends = run_all()
    assert ends["lost"] > 0
    assert ends["stuck"] > 0


def test_guarded_core_survives_the_same_faults() -> None:
    assert run_all() == {"well": len(SEEDS)}
