"""A broker that reports rarely: clients are sent to others long before it is certainly dead."""

from __future__ import annotations

import time

from mainstem.broker.broker import Broker
from mainstem.broker.cluster.service import MEMBER_SUSPECT_S
from mainstem.ledger.brokers import Heartbeat


async def _beat(broker: Broker) -> None:
    await broker.log.propose(Heartbeat(broker.log.broker, broker.log.epoch))


async def test_its_streams_have_other_leaders_until_it_reports_and_its_groups_wait(
    two_brokers: list[Broker],
) -> None:
    one, two = two_brokers
    for broker in two_brokers:
        await broker.cluster.join({})
        await broker.cluster.leave()  # stays a member, and reports only when the test has it do so
    await one.log.barrier()
    cluster, number = one.cluster, two.log.broker
    cluster.silent_members()
    before = cluster.leaders_state
    led = [stream for stream in range(64) if cluster.leader(stream) == number]
    coordinators = [cluster.coordinator("group", str(name)) for name in range(64)]
    assert led

    def silent_since(seconds: float) -> None:
        heard, _ = cluster._heard[number]
        cluster._heard[number] = (heard, time.monotonic() - seconds)

    silent_since(MEMBER_SUSPECT_S)
    await _beat(one)
    assert cluster.silent_members() == []  # nobody is expired yet
    assert {cluster.leader(stream) for stream in led} == {one.log.broker}
    assert {cluster.leader(stream, "nowhere") for stream in led} == {one.log.broker}
    assert cluster.leaders_state != before
    assert [cluster.coordinator("group", str(name)) for name in range(64)] == coordinators
    one.log._committer.committed_at -= MEMBER_SUSPECT_S  # its own commits do not get through either
    cluster.silent_members()
    assert cluster.leaders_state == before

    await _beat(one)
    silent_since(MEMBER_SUSPECT_S)
    await _beat(two)
    await one.log.barrier()
    cluster.silent_members()
    assert {cluster.leader(stream) for stream in led} == {number}
    assert cluster.leaders_state == before
