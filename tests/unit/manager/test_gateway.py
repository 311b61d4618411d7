"""The way to leaders: it tries until time is over, and never tells an append that is in doubt as failed, or as done."""

import asyncio

import pytest

from flotilla.net import Response, TimedOut
from flotilla.serving.errors import Refusal
from flotilla_manager.model import TopicState
from flotilla_manager.routing.gateway import Offsets
from unit.manager.dataplane import (
    LOST,
    UNREACHABLE,
    Answer,
    Brokers,
    Request,
    appended,
    hang,
    make_gateway,
    make_snapshot,
    make_topic,
    make_view,
    on_virtual_time,
    refusal,
    scripted,
)

TOPIC = make_topic()
NOT_LEADER = refusal("not_leader", leader={"id": "c", "url": None})
NOT_OURS = Response(504, {}, b"<html>")


def append(brokers: Brokers, *, repeatable: bool = True, seconds: float = 15.0) -> tuple[object, float]:
    """Append; return the offset or the code of the refusal, and how long that took."""

    async def run() -> tuple[object, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        gateway = make_gateway(brokers, make_view(TOPIC))
        try:
            done = await gateway.append(TOPIC, 0, b"batch", seconds=seconds, repeatable=repeatable)
        except Refusal as error:
            return error.code, loop.time() - began
        return done.base_offset, loop.time() - began

    return on_virtual_time(run())


def test_an_append_goes_to_the_topics_id() -> None:
    """A topic that was made again under the same name never gets what was meant for the one before."""
    brokers = scripted(appended(7))
    assert append(brokers) == (7, 0.0)
    assert brokers.asked[0].target == f"/v1/append?topic=id:{TOPIC.id}&partition=0"


@pytest.mark.parametrize("answer", [LOST, TimedOut("slow", sent=True), refusal("internal"), refusal("unknown_outcome")])
def test_what_was_sent_and_not_answered_is_sent_again_if_it_may_be(answer: Answer) -> None:
    assert append(scripted(answer, appended(3)))[0] == 3


@pytest.mark.parametrize("doubt", [LOST, refusal("internal"), refusal("unknown_outcome"), NOT_OURS])
@pytest.mark.parametrize(
    "then", [refusal("sequence_gap"), refusal("disk_full"), refusal("unknown_partition"), NOT_LEADER, UNREACHABLE]
)
def test_once_in_doubt_an_append_never_counts_as_failed(doubt: Answer, then: Answer) -> None:
    """A refusal speaks of one request: an earlier try of the same batch may be there all the same."""
    assert append(scripted(doubt, then))[0] == "unknown_outcome"


@pytest.mark.parametrize("answer", [LOST, refusal("internal"), refusal("unknown_outcome"), NOT_OURS])
def test_what_must_not_be_sent_twice_is_unknown_at_once(answer: Answer) -> None:
    brokers = scripted(answer, appended(3))
    assert append(brokers, repeatable=False) == ("unknown_outcome", 0.0)
    assert len(brokers.asked) == 1


@pytest.mark.parametrize("answer", [UNREACHABLE, NOT_LEADER, refusal("busy"), refusal("not_settled")])
def test_what_surely_was_not_carried_out_is_sent_again_even_if_it_must_not_be_stored_twice(answer: Answer) -> None:
    assert append(scripted(answer, appended(3)), repeatable=False)[0] == 3


def test_an_append_that_nobody_took_fails_with_the_last_reason() -> None:
    code, took_s = append(scripted(refusal("disk_full")))
    assert (code, round(took_s)) == ("disk_full", 15)


def test_a_refusal_ends_it_at_once() -> None:
    assert append(scripted(refusal("sequence_reused"))) == ("sequence_reused", 0.0)


def test_an_answer_that_cannot_be_read_is_no_success() -> None:
    assert append(scripted(Response(200, {}, b'{"status": "ok"}')))[0] == "unknown_outcome"


def test_a_broker_that_hangs_is_left_after_a_while() -> None:
    async def answer(request: Request) -> Answer:
        return await hang() if request.broker == "a" else appended(1)

    brokers = Brokers(answer)
    found, took_s = append(brokers)
    assert (found, brokers.order) == (1, "ab")
    assert took_s < 4


def test_the_leader_that_is_named_is_asked_without_a_pause_and_remembered() -> None:
    async def run() -> None:
        brokers = scripted(NOT_LEADER, appended(1))
        gateway = make_gateway(brokers, make_view(TOPIC))
        for _ in range(2):
            await gateway.append(TOPIC, 0, b"batch", seconds=15)
        assert brokers.order == "acc"
        assert asyncio.get_running_loop().time() == 1000.0

    on_virtual_time(run())


def test_brokers_that_name_each_other_are_not_asked_in_a_hurry() -> None:
    async def answer(request: Request) -> Answer:
        return refusal("not_leader", leader={"id": "b" if request.broker == "a" else "a"})

    brokers = Brokers(answer)
    code, took_s = append(brokers)
    assert (code, round(took_s)) == ("not_leader", 15)
    assert len(brokers.asked) < 100


def test_every_member_is_asked_even_if_some_are_not_known_here() -> None:
    """A guess that nobody can be asked about moves on."""

    async def run() -> None:
        async def answer(request: Request) -> Answer:
            return appended(1) if request.broker == "c" else refusal("no_leader")

        brokers = Brokers(answer)
        gateway = make_gateway(brokers, make_view(TOPIC, brokers=("b", "c")))
        assert (await gateway.append(TOPIC, 0, b"batch", seconds=15)).base_offset == 1
        assert brokers.order == "bc"

    on_virtual_time(run())


def test_nobody_to_ask_is_a_refusal() -> None:
    async def run() -> str:
        gateway = make_gateway(scripted(appended(1)), make_view(TOPIC, brokers=()))
        with pytest.raises(Refusal) as caught:
            await gateway.append(TOPIC, 0, b"batch", seconds=15)
        return caught.value.code

    assert on_virtual_time(run()) == "unavailable"


@pytest.mark.parametrize(("first", "code"), [(LOST, "unknown_outcome"), (UNREACHABLE, "unknown_partition")])
def test_a_topic_that_is_removed_meanwhile_ends_it_without_hiding_a_doubt(first: Answer, code: str) -> None:
    """The message may have been stored, and read, before the topic went away."""

    async def run() -> str:
        view = make_view(TOPIC)

        async def answer(_: Request) -> Answer:
            view.snapshot = make_snapshot(make_topic(state=TopicState.DELETING))
            return first

        with pytest.raises(Refusal) as caught:
            await make_gateway(Brokers(answer), view).append(TOPIC, 0, b"batch", seconds=15)
        return caught.value.code

    assert on_virtual_time(run()) == code


@pytest.mark.parametrize("code", ["unknown_partition", "sealed"])
def test_a_partition_that_brokers_do_not_know_is_looked_up_anew_and_is_not_called_missing(code: str) -> None:
    """As far as the metadata knows, the topic exists: that brokers have not opened it yet passes."""

    async def run() -> None:
        view = make_view(TOPIC)
        refreshed = []
        view.refresh_soon = lambda: refreshed.append(True)  # type: ignore[method-assign]
        with pytest.raises(Refusal) as caught:
            await make_gateway(scripted(refusal(code)), view).append(TOPIC, 0, b"batch", seconds=1)
        assert caught.value.code == "unavailable"
        assert refreshed

    on_virtual_time(run())


def test_a_question_is_asked_again_and_never_in_doubt() -> None:
    async def run() -> Offsets:
        headers = {b"flotilla-first-offset": b"3", b"flotilla-next-offset": b"9"}
        brokers = scripted(LOST, refusal("internal"), Response(200, headers, b""))
        return await make_gateway(brokers, make_view(TOPIC)).offsets(TOPIC, 0, seconds=15)

    assert on_virtual_time(run()) == Offsets(3, 9)


def test_a_question_that_nobody_answers_is_unavailable() -> None:
    async def run() -> str:
        with pytest.raises(Refusal) as caught:
            await make_gateway(scripted(LOST), make_view(TOPIC)).offsets(TOPIC, 0, seconds=15)
        return caught.value.code

    assert on_virtual_time(run()) == "unavailable"


def test_a_fetch_that_waits_gets_the_time_that_it_waits_on_top() -> None:
    async def run() -> float:
        brokers = scripted(Response(200, {}, b""))
        await make_gateway(brokers, make_view(TOPIC)).fetch(TOPIC, 0, "offset=0&wait_ms=30000", seconds=15, wait_s=30)
        return brokers.asked[0].timeout_s

    assert on_virtual_time(run()) == 33


def begins(first: int, end: int) -> Response:
    return Response(200, {}, b'{"status": "ok", "first_offset": %d, "next_offset": %d}' % (first, end))


def delete(brokers: Brokers, below: int | str = 7) -> Offsets | tuple[str, str]:
    async def run() -> Offsets | tuple[str, str]:
        try:
            return await make_gateway(brokers, make_view(TOPIC)).delete_records(TOPIC, 0, below, seconds=15)
        except Refusal as error:
            return error.code, str(error)

    return on_virtual_time(run())


def test_records_are_deleted_by_the_leader_of_the_topics_id() -> None:
    brokers = scripted(NOT_LEADER, begins(7, 9))
    assert delete(brokers) == (7, 9)
    assert brokers.order == "ac"
    assert brokers.asked[1].target == f"/v1/delete-records?topic=id:{TOPIC.id}&partition=0&offset=7"


@pytest.mark.parametrize(
    "answer", [LOST, TimedOut("slow", sent=True), refusal("unknown_outcome"), refusal("no_leader")]
)
def test_records_are_deleted_again_if_the_answer_was_lost(answer: Answer) -> None:
    """To say it again changes nothing."""
    assert delete(scripted(answer, begins(9, 9)), "latest") == (9, 9)


def test_a_deletion_that_nobody_knows_the_end_of_is_unknown() -> None:
    assert delete(scripted(LOST)) == ("unknown_outcome", "not known to be deleted after 15 s; it may be, or become so")
    assert delete(scripted(refusal("offset_out_of_range"))) == ("offset_out_of_range", "no")
    code, _ = delete(scripted(Response(200, {}, b"{}")))
    assert code == "unknown_outcome"
