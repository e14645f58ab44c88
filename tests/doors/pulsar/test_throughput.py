"""Rates of producers and consumers."""

from __future__ import annotations

import pytest

from mainstem.doors.pulsar.throughput import Throughput


def test_a_rate_is_that_of_the_last_window() -> None:
    now = 100.0
    moved = Throughput(lambda: now)
    moved.messages, moved.bytes = 20, 4_000
    assert moved.rates() == (0.0, 0.0)  # not long enough to tell
    now = 110.0
    assert moved.rates() == (2.0, 400.0)
    moved.messages += 5
    now = 110.5
    assert moved.rates() == (2.0, 400.0)
    now = 112.0
    assert moved.rates() == pytest.approx((2.5, 0.0))
    now = 122.0
    assert moved.rates() == (0.0, 0.0)
