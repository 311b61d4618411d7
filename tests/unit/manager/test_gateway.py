"""Gateway to leaders: retries until the timeout, and outcomes of appends (ok, failed, unknown)."""

import asyncio
from dataclasses import replace

import pytest

from flotilla.net import Response, TimedOut
from flotilla.protocol.errors import Refusal
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
    make_metadata,
    make_snapshot,
    make_topic,
    on_virtual_time,
    refusal,
    scripted,
)

TOPIC = make_topic()
NOT_LEADER = refusal("not_leader", leader={"id": "c", "url": None})
NOT_OURS = Response(504, {}, b"<html>")


def append(brokers: Brokers, *, repeatable: bool = True, timeout_s: float = 15.0) -> tuple[object, float]:
    """Append; return the offset or error code, and the duration."""

    async def run() -> tuple[object, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        gateway = make_gateway(brokers, make_metadata(TOPIC))
        try:
            done = await gateway.append(TOPIC, 0, b"batch", timeout_s=timeout_s, repeatable=repeatable)
        except Refusal as error:
            return error.code, loop.time() - began
        return done.base_offset, loop.time() - began

    return on_virtual_time(run())


def test_append_is_sent_to_the_topic_id() -> None:
    """A topic that was created again with the same name must not get records of the old one."""
    brokers = scripted(appended(7))
    assert append(brokers) == (7, 0.0)
    assert brokers.asked[0].target == f"/v1/append?topic=id:{TOPIC.id}&partition=0"


@pytest.mark.parametrize("answer", [LOST, TimedOut("slow", sent=True), refusal("internal"), refusal("unknown_outcome")])
def test_idempotent_append_without_a_response_is_retried(answer: Answer) -> None:
    assert append(scripted(answer, appended(3)))[0] == 3


@pytest.mark.parametrize("doubt", [LOST, refusal("internal"), refusal("unknown_outcome"), NOT_OURS])
@pytest.mark.parametrize(
    "then", [refusal("sequence_gap"), refusal("disk_full"), refusal("unknown_partition"), NOT_LEADER, UNREACHABLE]
)
def test_append_stays_unknown_after_a_later_refusal(doubt: Answer, then: Answer) -> None:
    """A refusal is about one request; an earlier attempt of the same batch may be stored."""
    assert append(scripted(doubt, then))[0] == "unknown_outcome"


@pytest.mark.parametrize("answer", [LOST, refusal("internal"), refusal("unknown_outcome"), NOT_OURS])
def test_append_without_idempotence_is_unknown_without_a_retry(answer: Answer) -> None:
    brokers = scripted(answer, appended(3))
    assert append(brokers, repeatable=False) == ("unknown_outcome", 0.0)
    assert len(brokers.asked) == 1


@pytest.mark.parametrize("answer", [UNREACHABLE, NOT_LEADER, refusal("busy"), refusal("not_settled")])
def test_append_that_was_definitely_not_stored_is_retried(answer: Answer) -> None:
    assert append(scripted(answer, appended(3)), repeatable=False)[0] == 3


def test_rejected_append_fails_with_the_last_reason() -> None:
    code, took_s = append(scripted(refusal("disk_full")))
    assert (code, round(took_s)) == ("disk_full", 15)


def test_permanent_refusal_is_not_retried() -> None:
    assert append(scripted(refusal("sequence_reused"))) == ("sequence_reused", 0.0)


SEND_AGAIN = "the records may be stored or not: send the batch again with the same producer id and sequence"
READ_FIRST = "the records may be stored or not: read the partition before you send the batch again"


def error_of(*answers: Answer, repeatable: bool = True) -> str:
    """Append; return the message of the unknown outcome. Broker a has the name broker-1."""

    async def run() -> str:
        metadata = make_metadata(TOPIC)
        assert metadata.snapshot is not None
        first, *others = metadata.snapshot.brokers
        metadata.snapshot = replace(metadata.snapshot, brokers=(replace(first, name="broker-1"), *others))
        gateway = make_gateway(scripted(*answers), metadata)
        with pytest.raises(Refusal) as caught:
            await gateway.append(TOPIC, 0, b"batch", timeout_s=15, repeatable=repeatable)
        assert caught.value.code == "unknown_outcome"
        return str(caught.value)

    return on_virtual_time(run())


def test_unknown_append_names_the_timeout_and_the_first_lost_response() -> None:
    expected = f"timed out after 15 s: broker broker-1 did not respond: the server hung up; {SEND_AGAIN}"
    assert error_of(LOST) == expected
    assert error_of(LOST, UNREACHABLE) == expected
    assert error_of(LOST, refusal("internal", "it is ill")) == expected


def test_unknown_append_that_is_not_retried_does_not_claim_a_timeout() -> None:
    assert error_of(LOST, repeatable=False) == f"broker broker-1 did not respond: the server hung up; {READ_FIRST}"
    assert error_of(refusal("internal", "it is ill"), repeatable=False) == (
        f"broker broker-1 responded: it is ill; {READ_FIRST}"
    )


def test_unknown_append_without_idempotence_names_a_timeout_that_has_passed() -> None:
    async def run() -> str:
        async def answer(_: Request) -> Answer:
            return await hang()

        gateway = make_gateway(Brokers(answer), make_metadata(TOPIC))
        with pytest.raises(Refusal) as caught:
            await gateway.append(TOPIC, 0, b"batch", timeout_s=15, repeatable=False)
        return str(caught.value)

    assert on_virtual_time(run()).startswith("timed out after 15 s: broker a:80 did not respond: ")


def test_unknown_append_names_the_lost_response_and_the_later_refusal() -> None:
    assert error_of(LOST, refusal("sequence_gap", "a gap")) == (
        f"broker broker-1 did not respond: the server hung up; a later attempt failed: a gap; {SEND_AGAIN}"
    )


def test_invalid_response_is_not_a_success() -> None:
    assert append(scripted(Response(200, {}, b'{"status": "ok"}')))[0] == "unknown_outcome"


def test_request_to_an_unresponsive_broker_times_out() -> None:
    async def answer(request: Request) -> Answer:
        return await hang() if request.broker == "a" else appended(1)

    brokers = Brokers(answer)
    found, took_s = append(brokers)
    assert (found, brokers.order) == (1, "ab")
    assert took_s < 4


def test_hinted_leader_is_tried_at_once_and_cached() -> None:
    async def run() -> None:
        brokers = scripted(NOT_LEADER, appended(1))
        gateway = make_gateway(brokers, make_metadata(TOPIC))
        for _ in range(2):
            await gateway.append(TOPIC, 0, b"batch", timeout_s=15)
        assert brokers.order == "acc"
        assert asyncio.get_running_loop().time() == 1000.0

    on_virtual_time(run())


def test_circular_leader_hints_are_followed_with_pauses() -> None:
    async def answer(request: Request) -> Answer:
        return refusal("not_leader", leader={"id": "b" if request.broker == "a" else "a"})

    brokers = Brokers(answer)
    code, took_s = append(brokers)
    assert (code, round(took_s)) == ("not_leader", 15)
    assert len(brokers.asked) < 100


def test_all_members_are_tried_although_some_are_unknown() -> None:
    """Members without an address are skipped."""

    async def run() -> None:
        async def answer(request: Request) -> Answer:
            return appended(1) if request.broker == "c" else refusal("no_leader")

        brokers = Brokers(answer)
        gateway = make_gateway(brokers, make_metadata(TOPIC, brokers=("b", "c")))
        assert (await gateway.append(TOPIC, 0, b"batch", timeout_s=15)).base_offset == 1
        assert brokers.order == "bc"

    on_virtual_time(run())


def test_partition_without_known_members_is_unavailable() -> None:
    async def run() -> str:
        gateway = make_gateway(scripted(appended(1)), make_metadata(TOPIC, brokers=()))
        with pytest.raises(Refusal) as caught:
            await gateway.append(TOPIC, 0, b"batch", timeout_s=15)
        return caught.value.code

    assert on_virtual_time(run()) == "unavailable"


@pytest.mark.parametrize(("first", "code"), [(LOST, "unknown_outcome"), (UNREACHABLE, "unknown_partition")])
def test_deleted_topic_ends_retries_and_keeps_an_unknown_outcome(first: Answer, code: str) -> None:
    """The message may have been stored and consumed before the topic was deleted."""

    async def run() -> str:
        metadata = make_metadata(TOPIC)

        async def answer(_: Request) -> Answer:
            metadata.snapshot = make_snapshot(make_topic(state=TopicState.DELETING))
            return first

        with pytest.raises(Refusal) as caught:
            await make_gateway(Brokers(answer), metadata).append(TOPIC, 0, b"batch", timeout_s=15)
        return caught.value.code

    assert on_virtual_time(run()) == code


@pytest.mark.parametrize("code", ["unknown_partition", "sealed"])
def test_partition_unknown_to_brokers_triggers_a_refresh_and_is_unavailable(code: str) -> None:
    """The topic exists in the metadata: brokers will open it soon."""

    async def run() -> None:
        metadata = make_metadata(TOPIC)
        refreshed = []
        metadata.refresh_soon = lambda: refreshed.append(True)  # type: ignore[method-assign]
        with pytest.raises(Refusal) as caught:
            await make_gateway(scripted(refusal(code)), metadata).append(TOPIC, 0, b"batch", timeout_s=1)
        assert caught.value.code == "unavailable"
        assert refreshed

    on_virtual_time(run())


def test_reads_are_retried_and_never_unknown() -> None:
    async def run() -> Offsets:
        headers = {b"flotilla-first-offset": b"3", b"flotilla-next-offset": b"9"}
        brokers = scripted(LOST, refusal("internal"), Response(200, headers, b""))
        return await make_gateway(brokers, make_metadata(TOPIC)).offsets(TOPIC, 0, timeout_s=15)

    assert on_virtual_time(run()) == Offsets(3, 9)


def test_read_without_a_response_is_unavailable() -> None:
    async def run() -> str:
        with pytest.raises(Refusal) as caught:
            await make_gateway(scripted(LOST), make_metadata(TOPIC)).offsets(TOPIC, 0, timeout_s=15)
        return caught.value.code

    assert on_virtual_time(run()) == "unavailable"


def test_wait_of_a_fetch_extends_its_timeout() -> None:
    async def run() -> float:
        brokers = scripted(Response(200, {}, b""))
        await make_gateway(brokers, make_metadata(TOPIC)).fetch(
            TOPIC, 0, "offset=0&wait_ms=30000", timeout_s=15, wait_s=30
        )
        return brokers.asked[0].timeout_s

    assert on_virtual_time(run()) == 33


def begins(first: int, end: int) -> Response:
    return Response(200, {}, b'{"status": "ok", "first_offset": %d, "next_offset": %d}' % (first, end))


def delete(brokers: Brokers, below: int | str = 7) -> Offsets | tuple[str, str]:
    async def run() -> Offsets | tuple[str, str]:
        try:
            return await make_gateway(brokers, make_metadata(TOPIC)).delete_records(TOPIC, 0, below, timeout_s=15)
        except Refusal as error:
            return error.code, str(error)

    return on_virtual_time(run())


def test_delete_records_is_sent_to_the_leader_of_the_topic_id() -> None:
    brokers = scripted(NOT_LEADER, begins(7, 9))
    assert delete(brokers) == (7, 9)
    assert brokers.order == "ac"
    assert brokers.asked[1].target == f"/v1/delete-records?topic=id:{TOPIC.id}&partition=0&offset=7"


@pytest.mark.parametrize(
    "answer", [LOST, TimedOut("slow", sent=True), refusal("unknown_outcome"), refusal("no_leader")]
)
def test_delete_records_is_retried_after_a_lost_response(answer: Answer) -> None:
    """Delete-records is idempotent."""
    assert delete(scripted(answer, begins(9, 9)), "latest") == (9, 9)


def test_delete_records_without_a_response_is_unknown() -> None:
    cause = "timed out after 15 s: broker a:80 did not respond: the server hung up"
    advice = "the records may be deleted or not: send the request again"
    assert delete(scripted(LOST)) == ("unknown_outcome", f"{cause}; {advice}")
    assert delete(scripted(refusal("offset_out_of_range"))) == ("offset_out_of_range", "no")
    code, text = delete(scripted(Response(200, {}, b"{}")))
    assert code == "unknown_outcome"
    assert str(text).startswith("invalid response from a broker: ")
    assert str(text).endswith(f"; {advice}")
