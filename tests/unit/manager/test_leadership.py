"""Who is the writer: one takes over when there is none, none takes over too early, none takes turns."""

import asyncio
from pathlib import Path

import pytest

from flotilla_manager.metadata.errors import DatabaseAway, Fenced
from flotilla_manager.model import Writer
from flotilla_manager.writer.leadership import SILENT_S, Leadership, Watched
from support.writing import Bench, Writing, on_bench


async def look_for(manager: Writing, seconds: int) -> None:
    for _ in range(seconds):
        manager.clock.move(1.0)
        await manager.leadership.look()


def test_the_first_one_takes_over_at_once_and_the_second_stands_by(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        one, two = bench.manager("http://one:1"), bench.manager("http://two:1")
        await one.leadership.look()
        await two.leadership.look()
        assert (one.leadership.epoch, two.leadership.epoch) == (1, None)
        for _ in range(20):
            await look_for(two, 1)
            await one.leadership.look()
        assert (one.leadership.epoch, two.leadership.epoch) == (1, None)

    on_bench(tmp_path, work)


def test_a_standby_takes_over_from_a_writer_that_is_silent_and_the_old_one_gives_way(tmp_path: Path) -> None:
    """Guarantee 6: an old writer finds itself fenced, and two do not take turns."""

    async def work(bench: Bench) -> None:
        one, two = bench.manager("http://one:1"), bench.manager("http://two:1")
        await one.leadership.look()
        await look_for(two, int(SILENT_S) + 3)
        assert two.leadership.epoch == 2
        await one.leadership.look()
        assert one.leadership.epoch is None
        for _ in range(20):
            await look_for(one, 1)
            await two.leadership.look()
        assert (one.leadership.epoch, two.leadership.epoch) == (None, 2)

    on_bench(tmp_path, work)


def test_one_that_is_started_at_the_same_address_takes_over_at_once_even_if_its_first_try_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(bench: Bench) -> None:
        await bench.manager("http://one:1").leadership.look()
        again = bench.manager("http://one:1")

        def fail(_: str) -> int:
            raise DatabaseAway("not now")

        with monkeypatch.context() as patched:
            patched.setattr(again.store, "take_over", fail)
            with pytest.raises(DatabaseAway):
                await again.leadership.look()
        await again.leadership.look()
        assert again.leadership.epoch == 2

    on_bench(tmp_path, work)


def test_two_at_the_same_address_do_not_take_turns(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        one, two = bench.manager("http://same:1"), bench.manager("http://same:1")
        await one.leadership.look()
        await two.leadership.look()
        for _ in range(10):
            await look_for(one, 1)
            await two.leadership.look()
        assert (one.leadership.epoch, two.leadership.epoch) == (None, 2)

    on_bench(tmp_path, work)


def test_a_standby_that_slept_or_waited_for_the_database_does_not_take_over(tmp_path: Path) -> None:
    """A pause of the standby, or of the database, says nothing about the writer."""

    async def work(bench: Bench) -> None:
        one, two = bench.manager("http://one:1"), bench.manager("http://two:1")
        await one.leadership.look()
        await two.leadership.look()
        two.clock.move(60.0)  # both slept, or the database did, and this one is asked first
        await two.leadership.look()
        assert two.leadership.epoch is None
        await one.leadership.look()
        await look_for(two, 3)
        assert (one.leadership.epoch, two.leadership.epoch) == (1, None)

    on_bench(tmp_path, work)


def test_the_time_that_an_answer_takes_does_not_count_as_silence() -> None:
    writer = Writer(epoch=1, url="http://one:1", beat=7)
    watched = Watched(writer, at=0.0)
    watched = watched.again(writer, asked_at=1.0, now=9.0)
    assert watched.silent_s == 1.0
    watched = watched.again(writer, asked_at=10.0, now=10.0)
    assert watched.silent_s == 2.0
    assert watched.again(Writer(epoch=1, url="http://one:1", beat=8), asked_at=11.0, now=11.0).silent_s == 0.0


def test_what_an_earlier_epoch_meets_with_does_not_cost_the_later_one(tmp_path: Path) -> None:
    """A slow request of an epoch that was lost must not make the writer of today give way."""

    async def work(bench: Bench) -> None:
        one = bench.manager()
        await one.leadership.look()
        old = one.epoch
        bench.store.take_over("http://two:1")
        await one.leadership.look()
        await look_for(one, int(SILENT_S) + 3)
        assert one.epoch == old + 2
        one.service.fenced(Fenced(old, old + 1, "http://two:1"))
        assert one.leadership.epoch == old + 2
        one.service.fenced(Fenced(old + 2, old + 3, "http://two:1"))
        assert one.leadership.epoch is None

    on_bench(tmp_path, work)


def test_a_writer_keeps_its_place_while_the_database_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(bench: Bench) -> None:
        one = bench.manager()
        await one.leadership.look()

        def fail(_: int) -> None:
            raise DatabaseAway("not now")

        monkeypatch.setattr(one.store, "beat", fail)
        with pytest.raises(DatabaseAway):
            await one.leadership.look()
        assert one.leadership.epoch == 1

    on_bench(tmp_path, work)


def test_one_that_is_retired_never_decides_again(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        one = bench.manager()
        await one.leadership.look()
        one.leadership.retire()
        await look_for(one, 10)
        assert one.leadership.epoch is None
        assert bench.store.writer().epoch == 1

    on_bench(tmp_path, work)


def test_trouble_with_the_database_does_not_end_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(bench: Bench) -> None:
        one = bench.manager()
        failures = iter([True])
        take_over = one.store.take_over

        def fail_once(url: str) -> int:
            if next(failures, False):
                raise DatabaseAway("not now")
            return take_over(url)

        monkeypatch.setattr(one.store, "take_over", fail_once)
        monkeypatch.setattr("flotilla_manager.writer.leadership.BEAT_S", 0.01)
        taken = asyncio.Event()
        leadership = Leadership(one.database, "http://one:1", clock=bench.clock, on_taken=taken.set)
        running = asyncio.create_task(leadership.run())
        await asyncio.wait_for(taken.wait(), 5)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    on_bench(tmp_path, work)
