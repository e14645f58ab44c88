"""Which quota applies to a client, and what it lets through, with a manual clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.client_quotas import QUOTA_THROTTLE_MS_MAX, QUOTA_WINDOW_S, Meter
from mainstem.errors import InvalidInput
from mainstem.ledger.client_quotas import QUOTA_RATE_MAX, AlterClientQuota, QuotaEntity
from mainstem.ports.clock import ManualClock

_KEY = "producer_byte_rate"

# The most specific first: each is removed in turn, and the next one applies.
_PRECEDENCE = [
    QuotaEntity("ann", "app"),
    QuotaEntity("ann", ""),
    QuotaEntity("ann", None),
    QuotaEntity("", "app"),
    QuotaEntity("", ""),
    QuotaEntity("", None),
    QuotaEntity(None, "app"),
    QuotaEntity(None, ""),
]


async def _put(broker: Broker, entity: QuotaEntity, rate: float) -> None:
    await broker.client_quotas.alter(AlterClientQuota(entity, ((_KEY, rate),)))


async def test_the_most_specific_quota_applies_and_survives_a_restart(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path))
    for rate, entity in enumerate(_PRECEDENCE, 1):
        await _put(broker, entity, rate)
    await broker.close()
    broker = await Broker.open(BrokerOptions(tmp_path))
    quotas = broker.client_quotas
    for rate, entity in enumerate(_PRECEDENCE, 1):
        meter = quotas.meter(_KEY, "ann", "app")
        assert meter is not None
        assert meter.rate == rate
        await quotas.alter(AlterClientQuota(entity, (), (_KEY,)))
    assert quotas.meter(_KEY, "ann", "app") is None
    assert not quotas.held
    await broker.close()


async def test_clients_of_one_quota_share_its_meter(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path))
    quotas = broker.client_quotas
    await _put(broker, QuotaEntity("ann", None), 10)
    await _put(broker, QuotaEntity("", ""), 20)
    assert quotas.meter(_KEY, "ann", "a") is quotas.meter(_KEY, "ann", "b")
    assert quotas.meter(_KEY, "bob", "a") is not quotas.meter(_KEY, "bob", "b")
    assert quotas.meter("consumer_byte_rate", "ann", "a") is None
    before = quotas.meter(_KEY, "ann", None)
    await _put(broker, QuotaEntity("ann", None), 30)
    after = quotas.meter(_KEY, "ann", "a")
    assert after is before  # the bytes already sent still count
    assert after is not None
    assert after.rate == 30
    with pytest.raises(InvalidInput):
        await quotas.alter(AlterClientQuota(QuotaEntity("ann", None), ((_KEY, -1.0),)), dry_run=True)
    await broker.close()


def test_the_long_run_throughput_is_the_rate() -> None:
    clock = ManualClock()
    meter = Meter(1000.0, clock)
    passed, begun = 0, clock.monotonic()
    while clock.monotonic() - begun < 600:
        held_ms = meter.take(700)
        passed += 700
        clock.advance(max(held_ms, 1))
    allowed = 1000 * (600 + QUOTA_WINDOW_S)
    assert allowed - 1400 <= passed <= allowed + 1400


@pytest.mark.parametrize("rate", [5e-324, 1e-300, QUOTA_RATE_MAX])
def test_extreme_rates_give_a_bounded_throttle(rate: float) -> None:
    clock = ManualClock()
    meter = Meter(rate, clock)
    assert meter.burst >= 1
    for _ in range(3):
        assert 0 <= meter.take(100 << 20) <= QUOTA_THROTTLE_MS_MAX
        clock.advance(1_000)


def test_a_request_over_the_quota_passes_and_is_paid_off_over_time() -> None:
    clock = ManualClock()
    meter = Meter(1.0, clock)
    assert meter.take(1_000) == QUOTA_THROTTLE_MS_MAX
    clock.advance(QUOTA_THROTTLE_MS_MAX)
    assert meter.take(0) == QUOTA_THROTTLE_MS_MAX
    clock.advance(3_600_000)
    assert meter.take(int(QUOTA_WINDOW_S)) == 0  # idle time is not saved beyond the window
    assert 0 < meter.take(1) <= 1001
