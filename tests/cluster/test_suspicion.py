"""A broker that reports rarely: clients are sent to others long before it is certainly dead."""

from __future__ import annotations

import math
import time
from pathlib import Path

from mainstem.broker.broker import Broker
from mainstem.broker.cluster.service import MEMBER_HEARTBEAT_S, MEMBER_SUSPECT_S
from mainstem.ledger.brokers import Heartbeat
from tests.support.clock import ManualClock
from tests.support.cluster import brokers_here


async def _beat(broker: Broker) -> None:
    await broker.log.propose(Heartbeat(broker.log.broker, broker.log.epoch))


async def test_its_streams_have_other_leaders_until_it_reports_and_its_groups_wait(tmp_path: Path) -> None:
    clock = ManualClock(int(time.time() * 1000))
    async with brokers_here(tmp_path, "one", "two", clock=clock) as brokers:
        one, two = brokers
        for broker in brokers:
            await broker.cluster.join({})
            await broker.cluster.leave()  # stays a member, and reports only when the test has it do so
        await one.log.barrier()
        cluster, number = one.cluster, two.log.broker
        cluster.silent_members()
        before = cluster.leaders_state
        led = [stream for stream in range(64) if cluster.leader(stream) == number]
        coordinators = [cluster.coordinator("group", str(name)) for name in range(64)]
        assert led

        def wait_until_suspected() -> None:
            for _ in range(math.ceil(MEMBER_SUSPECT_S / MEMBER_HEARTBEAT_S)):
                clock.advance(int(MEMBER_HEARTBEAT_S * 1000))
                assert cluster.silent_members() == []  # nobody is expired yet

        wait_until_suspected()
        assert cluster.leaders_state == before  # its own commits do not get through either
        await _beat(one)
        cluster.silent_members()
        assert {cluster.leader(stream) for stream in led} == {one.log.broker}
        assert {cluster.leader(stream, "nowhere") for stream in led} == {one.log.broker}
        assert cluster.leaders_state != before
        assert [cluster.coordinator("group", str(name)) for name in range(64)] == coordinators

        await _beat(two)
        await one.log.barrier()
        cluster.silent_members()
        assert {cluster.leader(stream) for stream in led} == {number}
        assert cluster.leaders_state == before
