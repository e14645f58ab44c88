"""Which quota applies to a client, and what it lets through, with a manual clock."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem import limits
from mainstem.broker.access.principal import Principal
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.rates import THROTTLE_MS_MAX, TokenBucket
from mainstem.errors import InvalidInput
from mainstem.ledger.rates import RATE_MAX, AlterRate, RateEntity
from tests.support.clock import ManualClock

_KEY = "producer_byte_rate"

# The most specific first: each is removed in turn, and the next one applies.
_PRECEDENCE = [
    RateEntity("ann", "app"),
    RateEntity("ann", ""),
    RateEntity("ann", None),
    RateEntity("", "app"),
    RateEntity("", ""),
    RateEntity("", None),
    RateEntity(None, "app"),
    RateEntity(None, ""),
]


async def _put(broker: Broker, entity: RateEntity, rate: float) -> None:
    await broker.rates.alter(AlterRate(entity, ((_KEY, rate),)))


async def test_the_most_specific_quota_applies_and_survives_a_restart(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path))
    for rate, entity in enumerate(_PRECEDENCE, 1):
        await _put(broker, entity, rate)
    await broker.close()
    broker = await Broker.open(BrokerOptions(tmp_path))
    quotas = broker.rates
    for rate, entity in enumerate(_PRECEDENCE, 1):
        meter = quotas.of_client(_KEY, "ann", "app")
        assert meter is not None
        assert meter.rate == rate
        await quotas.alter(AlterRate(entity, (), (_KEY,)))
    assert quotas.of_client(_KEY, "ann", "app") is None
    assert not quotas.stored.active
    await broker.close()


async def test_clients_of_one_quota_share_its_meter(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path))
    quotas = broker.rates
    await _put(broker, RateEntity("ann", None), 10)
    await _put(broker, RateEntity("", ""), 20)
    assert quotas.of_client(_KEY, "ann", "a") is quotas.of_client(_KEY, "ann", "b")
    assert quotas.of_client(_KEY, "bob", "a") is not quotas.of_client(_KEY, "bob", "b")
    assert quotas.of_client("consumer_byte_rate", "ann", "a") is None
    before = quotas.of_client(_KEY, "ann", None)
    await _put(broker, RateEntity("ann", None), 30)
    after = quotas.of_client(_KEY, "ann", "a")
    assert after is before  # the bytes already sent still count
    assert after is not None
    assert after.rate == 30
    with pytest.raises(InvalidInput):
        await quotas.alter(AlterRate(RateEntity("ann", None), ((_KEY, -1.0),)), dry_run=True)
    await broker.close()


def test_the_long_run_throughput_is_the_rate() -> None:
    clock = ManualClock()
    meter = TokenBucket(1000.0, clock)
    passed, begun = 0, clock.monotonic()
    while clock.monotonic() - begun < 600:
        held_ms = meter.take(700)
        passed += 700
        clock.advance(max(held_ms, 1))
    allowed = 1000 * (600 + limits.RATE_BURST_S)
    assert allowed - 1400 <= passed <= allowed + 1400


@pytest.mark.parametrize("rate", [5e-324, 1e-300, RATE_MAX])
def test_extreme_rates_give_a_bounded_throttle(rate: float) -> None:
    clock = ManualClock()
    meter = TokenBucket(rate, clock)
    assert meter.burst >= 1
    for _ in range(3):
        assert 0 <= meter.take(100 << 20) <= THROTTLE_MS_MAX
        clock.advance(1_000)


def test_a_request_over_the_quota_passes_and_is_paid_off_over_time() -> None:
    clock = ManualClock()
    meter = TokenBucket(1.0, clock)
    assert meter.take(1_000) == THROTTLE_MS_MAX
    clock.advance(THROTTLE_MS_MAX)
    assert meter.take(0) == THROTTLE_MS_MAX
    clock.advance(3_600_000)
    assert meter.take(int(limits.RATE_BURST_S)) == 0  # idle time is not saved beyond the window
    assert 0 < meter.take(1) <= 1001


@given(
    rate=st.floats(0.1, 1e9),
    burst_s=st.floats(0.01, 100),
    steps=st.lists(st.tuples(st.floats(0, 30_000), st.floats(0, 1e9)), max_size=60),
)
def test_a_bucket_is_a_token_bucket(rate: float, burst_s: float, steps: list[tuple[float, float]]) -> None:
    """Against exact arithmetic: what is left never exceeds the burst, and debt is paid at the rate."""
    clock = ManualClock()
    bucket = TokenBucket(rate, clock, burst_s)
    exact, capacity = Fraction(rate) * Fraction(burst_s), Fraction(rate) * Fraction(burst_s)
    last = clock.monotonic()
    for pause_ms, size in steps:
        clock.advance(int(pause_ms))
        now = clock.monotonic()
        exact = min(exact + Fraction(now - last) * Fraction(rate), capacity) - Fraction(size)
        last = now
        held_ms = bucket.take(size)
        if exact >= 0:
            assert held_ms <= 1  # rounding
        else:
            debt_ms = float(-exact / Fraction(rate) * 1000)
            expected = min(debt_ms, THROTTLE_MS_MAX)
            assert held_ms == pytest.approx(expected, rel=1e-6, abs=2)


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 3)), min_size=1, max_size=40))
def test_whoever_waits_as_told_never_exceeds_the_rate(calls: list[tuple[int, int]]) -> None:
    """Clients that share a bucket, and wait as long as they are told: the sum stays below burst, rate and one call."""
    clock = ManualClock()
    bucket = TokenBucket(1_000.0, clock, 2.0)
    moved, begun = 0, clock.monotonic()
    for size, pause_ms in calls:
        clock.advance(pause_ms + bucket.debt_ms())
        bucket.take(size)
        moved += size
        assert moved <= 1_000 * (clock.monotonic() - begun) + 2_000 + size + 5 * len(calls)


async def test_groups_namespaces_and_topics_are_limited_beside_their_client(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path))
    rates = broker.rates
    ann = Principal("User:ann")
    assert not rates.stored.active
    assert rates.consume(ann, "acme/shop/t", "g", 10**12, 10**9) == 0
    for entity in (
        RateEntity(group="g"),
        RateEntity(group="acme/shop/h"),
        RateEntity(namespace="acme"),
        RateEntity(namespace=""),
        RateEntity(topic="free/slow"),
    ):
        await rates.alter(AlterRate(entity, (("consumer_byte_rate", 100.0), ("burst_s", 1.0))))
    assert rates.produce(ann, "acme/t", 10**9, 1) == 0  # only reads are limited
    assert rates.consume(ann, "lone/t", None, 100, 1) == 0
    assert rates.consume(ann, "lone/t", None, 100, 1) > 0
    assert (
        rates.consume(ann, "other/t", "g", 100, 1) == 0
    )  # a default gives each namespace a bucket of its own
    assert rates.consume(ann, "third/t", "g", 1, 1) > 0  # the group is one, whatever it reads
    assert rates.consume(ann, "acme/shop/t", "acme/shop\x1fh", 60, 1) == 0  # a group of a bound namespace
    assert rates.consume(ann, "acme/games/t", None, 60, 1) > 0  # the outer namespace limits both
    assert rates.throttled(RateEntity(namespace="acme"))[0] == 1
    await rates.alter(AlterRate(RateEntity(namespace=""), (), ("consumer_byte_rate", "burst_s")))
    assert rates.consume(ann, "free/slow", None, 101, 1) > 0  # whichever client reads it
    assert rates.consume(Principal("User:bob"), "free/slow", None, 1, 1) > 0
    assert rates.consume(ann, "free/fast", None, 10**6, 1) == 0
    await broker.close()
