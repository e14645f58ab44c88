"""Rates on the text door: answers come late."""

from __future__ import annotations

import time

from mainstem.broker.broker import Broker
from mainstem.broker.groups.cursors import SHARED_CURSOR
from mainstem.broker.rates import AlterRate, RateEntity

from .conftest import Wire


async def test_answers_over_a_rate_come_late(wire: Wire, broker: Broker) -> None:
    await wire.ask("REGISTER t")
    alter = broker.rates.alter
    limits = (("producer_record_rate", 10.0), ("burst_s", 0.1))
    await alter(AlterRate(RateEntity(user="ANONYMOUS"), limits))
    began = time.monotonic()
    wire.send(*(f"PUT t {number}" for number in range(4)))
    assert await wire.answers(4) == ["OK"] * 4
    assert time.monotonic() - began >= 0.25
    await alter(AlterRate(RateEntity(user="ANONYMOUS"), (), ("producer_record_rate", "burst_s")))
    limits = (("consumer_record_rate", 10.0), ("burst_s", 0.1))
    await alter(AlterRate(RateEntity(group=SHARED_CURSOR), limits))
    began = time.monotonic()
    wire.send(*["GET t"] * 4)
    assert await wire.answers(4) == ["OK 0", "OK 1", "OK 2", "OK 3"]
    assert time.monotonic() - began >= 0.25
