"""Election of the writer: takeover, no takeover too early, and no flapping."""

import asyncio
import logging
from pathlib import Path

import pytest

from flotilla_manager.metadata.errors import DatabaseUnavailable, Fenced
from flotilla_manager.model import Writer
from flotilla_manager.writer.election import TAKEOVER_S, Watched, WriterElection
from support.writer_harness import Bench, WriterHarness, on_bench


async def look_for(manager: WriterHarness, seconds: int) -> None:
    for _ in range(seconds):
        manager.clock.move(1.0)
        await manager.election.step()


def test_first_manager_takes_over_at_once_and_second_stands_by(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        one, two = bench.manager("http://one:1"), bench.manager("http://two:1")
        await one.election.step()
        await two.election.step()
        assert (one.election.epoch, two.election.epoch) == (1, None)
        for _ in range(20):
            await look_for(two, 1)
            await one.election.step()
        assert (one.election.epoch, two.election.epoch) == (1, None)

    on_bench(tmp_path, work)


def test_standby_takes_over_from_a_dead_writer_which_is_fenced(tmp_path: Path) -> None:
    """Guarantee 6: the old writer is fenced, and the two do not alternate."""

    async def work(bench: Bench) -> None:
        one, two = bench.manager("http://one:1"), bench.manager("http://two:1")
        await one.election.step()
        await look_for(two, int(TAKEOVER_S) + 3)
        assert two.election.epoch == 2
        await one.election.step()
        assert one.election.epoch is None
        for _ in range(20):
            await look_for(one, 1)
            await two.election.step()
        assert (one.election.epoch, two.election.epoch) == (None, 2)

    on_bench(tmp_path, work)


def test_restarted_writer_takes_over_at_once_even_if_its_first_attempt_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(bench: Bench) -> None:
        await bench.manager("http://one:1").election.step()
        again = bench.manager("http://one:1")

        def fail(_: str) -> int:
            raise DatabaseUnavailable("not now")

        with monkeypatch.context() as patched:
            patched.setattr(again.store, "take_over", fail)
            with pytest.raises(DatabaseUnavailable):
                await again.election.step()
        await again.election.step()
        assert again.election.epoch == 2

    on_bench(tmp_path, work)


def test_two_managers_at_one_address_do_not_alternate(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        one, two = bench.manager("http://same:1"), bench.manager("http://same:1")
        await one.election.step()
        await two.election.step()
        for _ in range(10):
            await look_for(one, 1)
            await two.election.step()
        assert (one.election.epoch, two.election.epoch) == (None, 2)

    on_bench(tmp_path, work)


def test_standby_does_not_take_over_after_a_pause_of_itself_or_the_database(tmp_path: Path) -> None:
    """Such a pause does not show that the writer is dead."""

    async def work(bench: Bench) -> None:
        one, two = bench.manager("http://one:1"), bench.manager("http://two:1")
        await one.election.step()
        await two.election.step()
        two.clock.move(60.0)  # both or the database were paused, and this one continues first
        await two.election.step()
        assert two.election.epoch is None
        await one.election.step()
        await look_for(two, 3)
        assert (one.election.epoch, two.election.epoch) == (1, None)

    on_bench(tmp_path, work)


def test_standby_is_logged_once_and_only_steps_count_silence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(bench: Bench) -> None:
        one, two = bench.manager("http://one:1"), bench.manager("http://two:1")
        await one.election.step()
        for _ in range(3):
            await two.election.step()
        writer = bench.store.writer()
        for _ in range(10):
            bench.clock.move(1.0)
            assert not two.election._may_take_over(writer)
        await two.election.step()
        assert two.election.epoch is None
        assert caplog.messages.count("standing by writer=http://one:1 epoch=1") == 1

    with caplog.at_level(logging.INFO):
        on_bench(tmp_path, work)


def test_duration_of_a_query_does_not_count_as_silence() -> None:
    writer = Writer(epoch=1, url="http://one:1", heartbeat=7)
    watched = Watched(writer, observed_at=0.0)
    watched = watched.with_observation(writer, asked_at=1.0, now=9.0)
    assert watched.silent_s == 1.0
    watched = watched.with_observation(writer, asked_at=10.0, now=10.0)
    assert watched.silent_s == 2.0
    assert (
        watched.with_observation(Writer(epoch=1, url="http://one:1", heartbeat=8), asked_at=11.0, now=11.0).silent_s
        == 0.0
    )


def test_fenced_request_of_an_earlier_epoch_does_not_end_the_current_one(tmp_path: Path) -> None:
    """A slow request of a lost epoch must not make the current writer step down."""

    async def work(bench: Bench) -> None:
        one = bench.manager()
        await one.election.step()
        old = one.epoch
        bench.store.take_over("http://two:1")
        await one.election.step()
        await look_for(one, int(TAKEOVER_S) + 3)
        assert one.epoch == old + 2
        one.service.give_up_role(Fenced(old, old + 1, "http://two:1"))
        assert one.election.epoch == old + 2
        one.service.give_up_role(Fenced(old + 2, old + 3, "http://two:1"))
        assert one.election.epoch is None

    on_bench(tmp_path, work)


def test_writer_keeps_leadership_while_the_database_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(bench: Bench) -> None:
        one = bench.manager()
        await one.election.step()

        def fail(_: int) -> None:
            raise DatabaseUnavailable("not now")

        monkeypatch.setattr(one.store, "heartbeat", fail)
        with pytest.raises(DatabaseUnavailable):
            await one.election.step()
        assert one.election.epoch == 1

    on_bench(tmp_path, work)


def test_retired_writer_does_not_take_over_again(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        one = bench.manager()
        await one.election.step()
        one.election.retire()
        await look_for(one, 10)
        assert one.election.epoch is None
        assert bench.store.writer().epoch == 1

    on_bench(tmp_path, work)


def test_database_errors_do_not_end_the_leadership_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(bench: Bench) -> None:
        one = bench.manager()
        failures = iter([True])
        take_over = one.store.take_over

        def fail_once(url: str) -> int:
            if next(failures, False):
                raise DatabaseUnavailable("not now")
            return take_over(url)

        monkeypatch.setattr(one.store, "take_over", fail_once)
        monkeypatch.setattr("flotilla_manager.writer.election.HEARTBEAT_S", 0.01)
        taken = asyncio.Event()
        election = WriterElection(one.database, "http://one:1", clock=bench.clock, on_taken=taken.set)
        running = asyncio.create_task(election.run())
        await asyncio.wait_for(taken.wait(), 5)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    on_bench(tmp_path, work)
