import asyncio
import logging
import threading

import pytest

from flotilla.client.deliveries import Deliveries, Delivery, Outcome, Part, Receipt
from flotilla.client.errors import DeliveryFailed, DeliveryUnknown


def test_deliveries_of_one_batch_share_the_outcome_with_their_own_offsets() -> None:
    outcome = Outcome("t", 2)
    first, second = Delivery(outcome, 0), Delivery(outcome, 1)
    assert not first.done()
    outcome.settle(17)
    assert first.done()
    assert (first.result(), second.result()) == (Receipt("t", 2, 17), Receipt("t", 2, 18))
    assert first.exception() is None
    assert (first.topic, first.partition) == ("t", 2)


def test_delivery_result_times_out_and_is_available_later() -> None:
    outcome = Outcome("t", 0)
    delivery = Delivery(outcome, 0)
    with pytest.raises(TimeoutError, match=r"no outcome after 0\.01 s"):
        delivery.result(timeout=0.01)
    with pytest.raises(TimeoutError):
        delivery.result(timeout=0)
    outcome.settle(0)
    assert delivery.result(timeout=0).offset == 0


def test_several_threads_wait_for_one_outcome() -> None:
    outcome, found = Outcome("t", 0), []
    threads = [threading.Thread(target=lambda at=at: found.append(Delivery(outcome, at).result(10))) for at in range(5)]
    for thread in threads:
        thread.start()
    outcome.settle(100)
    for thread in threads:
        thread.join()
    assert sorted(receipt.offset for receipt in found) == [100, 101, 102, 103, 104]


def test_each_record_raises_a_copy_of_the_error() -> None:
    """One exception object for a million records would collect a million tracebacks."""
    outcome = Outcome("t", 0)
    error = DeliveryFailed("no")
    outcome.settle(error)
    with pytest.raises(DeliveryFailed, match="no") as first:
        Delivery(outcome, 0).result()
    with pytest.raises(DeliveryFailed, match="no") as second:
        Delivery(outcome, 1).result()
    assert first.value is not second.value
    assert Delivery(outcome, 0).exception() is error


def test_callbacks_are_called_once_and_their_exceptions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    outcome, called = Outcome("t", 0), []
    delivery = Delivery(outcome, 3)
    delivery.add_done_callback(lambda _: 1 // 0)
    delivery.add_done_callback(lambda one: called.append(one.result().offset))
    with caplog.at_level(logging.ERROR):
        outcome.settle(10)
    assert called == [13]
    assert "ZeroDivisionError" in caplog.text
    delivery.add_done_callback(lambda one: called.append(one.result().offset))
    assert called == [13, 13]


def test_delivery_can_be_awaited_on_any_loop() -> None:
    outcome = Outcome("t", 0)

    async def wait() -> tuple[Receipt, Receipt]:
        threading.Timer(0.01, outcome.settle, (5,)).start()
        return await Delivery(outcome, 0), await Delivery(outcome, 1)

    assert asyncio.run(wait()) == (Receipt("t", 0, 5), Receipt("t", 0, 6))


def test_blocking_wait_on_the_clients_loop_raises() -> None:
    async def wait() -> None:
        Delivery(Outcome("t", 0, asyncio.get_running_loop()), 0).result()

    with pytest.raises(RuntimeError, match="use `await`"):
        asyncio.run(wait())


def test_deliveries_of_send_many_keep_the_order_of_the_records() -> None:
    one, other = Outcome("t", 0), Outcome("t", 1)
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


def test_deliveries_raise_the_error_of_the_first_failed_record() -> None:
    well, failed, unknown = Outcome("t", 0), Outcome("t", 1), Outcome("t", 2)
    deliveries = Deliveries(3, [Part(unknown, 0, [2]), Part(well, 0, [0]), Part(failed, 0, [1])])
    with pytest.raises(TimeoutError, match="not all outcomes"):
        deliveries.result(timeout=0.01)
    well.settle(1)
    failed.settle(DeliveryFailed("no"))
    unknown.settle(DeliveryUnknown("who knows"))
    with pytest.raises(DeliveryFailed):
        deliveries.result()
    assert [type(one.exception()) for one in deliveries] == [type(None), DeliveryFailed, DeliveryUnknown]
