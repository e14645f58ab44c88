"""Which quota applies to a client, and what it lets through, with a manual clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstem import limits
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.rates import TokenBucket
from mainstem.errors import InvalidInput
from mainstem.ledger.rates import AlterRate, RateEntity
from mainstem.ports.clock import ManualClock

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


@pytest.mark.parametrize("rate", [5e-324, 1e-300, limits.RATE_MAX])
def test_extreme_rates_give_a_bounded_throttle(rate: float) -> None:
    clock = ManualClock()
    meter = TokenBucket(rate, clock)
    assert meter.burst >= 1
    for _ in range(3):
        assert 0 <= meter.take(100 << 20) <= limits.THROTTLE_MS_MAX
        clock.advance(1_000)


def test_a_request_over_the_quota_passes_and_is_paid_off_over_time() -> None:
    clock = ManualClock()
    meter = TokenBucket(1.0, clock)
    assert meter.take(1_000) == limits.THROTTLE_MS_MAX
    clock.advance(limits.THROTTLE_MS_MAX)
    assert meter.take(0) == limits.THROTTLE_MS_MAX
    clock.advance(3_600_000)
    assert meter.take(int(limits.RATE_BURST_S)) == 0  # idle time is not saved beyond the window
    assert 0 < meter.take(1) <= 1001
