import random

from flotilla_broker.peers.pacing import Backoff, Due, Silence, Throttle


def test_delays_double_up_to_the_limit_minus_at_most_half() -> None:
    backoff = Backoff(0.1, 2.0, random.Random(1).random)
    full = [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    delays = [backoff.next_s() for _ in full]
    assert all(limit / 2 <= delay <= limit for delay, limit in zip(delays, full, strict=True))
    backoff.reset()
    assert backoff.next_s() <= 0.1


def test_two_brokers_do_not_dial_at_the_same_times() -> None:
    one, other = Backoff(0.1, 2.0, random.Random(1).random), Backoff(0.1, 2.0, random.Random(2).random)
    assert [one.next_s() for _ in range(5)] != [other.next_s() for _ in range(5)]


def test_one_log_line_passes_per_interval_with_the_number_of_suppressed_ones() -> None:
    throttle = Throttle(1.0)
    assert [throttle.pass_at(now) for now in (0.0, 0.1, 0.9, 1.0, 1.5, 9.0)] == [0, None, None, 2, None, 1]


def test_silence_is_counted_in_ticks_since_the_last_received_data() -> None:
    silence = Silence(2.0, 6.0)
    assert [silence.tick() for _ in range(3)] == [Due.PING] * 3  # received when it started, so this is four seconds
    silence.heard = True
    assert [silence.tick() for _ in range(4)] == [Due.PING, Due.PING, Due.PING, Due.CLOSE]
