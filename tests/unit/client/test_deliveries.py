import asyncio
import logging
import threading

import pytest

from flotilla.client.deliveries import Deliveries, Delivery, Fate, Part, Receipt
from flotilla.client.errors import DeliveryFailed, DeliveryUnknown


def test_all_records_of_a_batch_end_in_the_same_way_each_at_its_own_offset() -> None:
    fate = Fate("t", 2)
    first, second = Delivery(fate, 0), Delivery(fate, 1)
    assert not first.done()
    fate.settle(17)
    assert first.done()
    assert (first.result(), second.result()) == (Receipt("t", 2, 17), Receipt("t", 2, 18))
    assert first.exception() is None
    assert (first.topic, first.partition) == ("t", 2)


def test_an_outcome_that_takes_too_long_is_a_timeout_and_comes_later() -> None:
    fate = Fate("t", 0)
    delivery = Delivery(fate, 0)
    with pytest.raises(TimeoutError, match=r"not known after 0\.01 s"):
        delivery.result(timeout=0.01)
    with pytest.raises(TimeoutError):
        delivery.result(timeout=0)
    fate.settle(0)
    assert delivery.result(timeout=0).offset == 0


def test_threads_wait_for_an_outcome_together() -> None:
    fate, found = Fate("t", 0), []
    threads = [threading.Thread(target=lambda at=at: found.append(Delivery(fate, at).result(10))) for at in range(5)]
    for thread in threads:
        thread.start()
    fate.settle(100)
    for thread in threads:
        thread.join()
    assert sorted(receipt.offset for receipt in found) == [100, 101, 102, 103, 104]


def test_an_error_is_raised_anew_for_each_record() -> None:
    """One object for a million records would gather a million tracebacks."""
    fate = Fate("t", 0)
    error = DeliveryFailed("no")
    fate.settle(error)
    with pytest.raises(DeliveryFailed, match="no") as first:
        Delivery(fate, 0).result()
    with pytest.raises(DeliveryFailed, match="no") as second:
        Delivery(fate, 1).result()
    assert first.value is not second.value
    assert Delivery(fate, 0).exception() is error


def test_callbacks_are_called_once_and_one_that_raises_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    fate, called = Fate("t", 0), []
    delivery = Delivery(fate, 3)
    delivery.add_done_callback(lambda _: 1 // 0)
    delivery.add_done_callback(lambda one: called.append(one.result().offset))
    with caplog.at_level(logging.ERROR):
        fate.settle(10)
    assert called == [13]
    assert "ZeroDivisionError" in caplog.text
    delivery.add_done_callback(lambda one: called.append(one.result().offset))
    assert called == [13, 13]


def test_a_delivery_is_awaited_on_any_loop() -> None:
    fate = Fate("t", 0)

    async def wait() -> tuple[Receipt, Receipt]:
        threading.Timer(0.01, fate.settle, (5,)).start()
        return await Delivery(fate, 0), await Delivery(fate, 1)

    assert asyncio.run(wait()) == (Receipt("t", 0, 5), Receipt("t", 0, 6))


def test_waiting_for_oneself_is_refused() -> None:
    async def wait() -> None:
        Delivery(Fate("t", 0, asyncio.get_running_loop()), 0).result()

    with pytest.raises(RuntimeError, match="use `await`"):
        asyncio.run(wait())


def test_the_outcomes_of_many_are_in_their_order() -> None:
    one, other = Fate("t", 0), Fate("t", 1)
    deliveries = Deliveries(5, [Part(one, 0, [0, 3]), Part(other, 7, range(1, 3)), Part(one, 2, [4])])
    assert len(deliveries) == 5
    one.settle(100)
    assert not deliveries.done()
    other.settle(200)
    expected = [("t", 0, 100), ("t", 1, 207), ("t", 1, 208), ("t", 0, 101), ("t", 0, 102)]
    assert deliveries.result() == expected
    assert [delivery.result() for delivery in deliveries] == expected
    assert asyncio.run(_await(deliveries)) == expected


async def _await(deliveries: Deliveries) -> list[Receipt]:
    return await deliveries


def test_of_many_the_first_error_counts_and_each_can_be_looked_at() -> None:
    well, failed, unknown = Fate("t", 0), Fate("t", 1), Fate("t", 2)
    deliveries = Deliveries(3, [Part(unknown, 0, [2]), Part(well, 0, [0]), Part(failed, 0, [1])])
    with pytest.raises(TimeoutError, match="not all outcomes"):
        deliveries.result(timeout=0.01)
    well.settle(1)
    failed.settle(DeliveryFailed("no"))
    unknown.settle(DeliveryUnknown("who knows"))
    with pytest.raises(DeliveryFailed):
        deliveries.result()
    assert [type(one.exception()) for one in deliveries] == [type(None), DeliveryFailed, DeliveryUnknown]
