"""Brokers in several zones: a client that names its zone reads from a broker of that zone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ports.commitlog.shared.open import SharedPlace

from .conftest import KafkaStage, opened
from .requests import fetch, metadata

_PARTITIONS = 6


@pytest.fixture
async def zones(tmp_path: Path) -> AsyncIterator[dict[str, KafkaStage]]:
    """A broker in each of two zones, with a topic of one record a partition. Clients are in the zone `here`."""
    place = SharedPlace((tmp_path / "bucket").as_uri())
    async with AsyncExitStack() as stack:
        found = {}
        for zone in ("here", "there"):
            broker = await Broker.open(BrokerOptions(tmp_path / zone, place=place, zone=zone))
            stack.push_async_callback(broker.close)
            stage = await stack.enter_async_context(opened(broker, broker_id=broker.log.broker))
            await broker.cluster.join({"kafka": stage.bootstrap})
            found[zone] = stage
        near = found["here"].broker
        await near.create_topic("t", partitions=_PARTITIONS)
        for partition in range(_PARTITIONS):
            await near.append_values("t", [b"%d" % partition], partition=partition)
        for stage in found.values():
            await stage.broker.log.barrier()
        yield found


async def _fetched(stage: KafkaStage) -> list[Any]:
    wire = await stage.connect()
    answer = await wire.ask(fetch(12, "t", *((partition, 0) for partition in range(_PARTITIONS))))
    return [part for topic in answer.responses for part in topic.partitions]


async def test_a_client_is_sent_to_the_broker_of_its_zone(zones: dict[str, KafkaStage]) -> None:
    near = zones["here"].broker.log.broker
    sent = await _fetched(zones["there"])
    assert {part.preferred_read_replica for part in sent} == {near}
    assert not any(part.records for part in sent)
    read = await _fetched(zones["here"])
    assert {part.preferred_read_replica for part in read} == {-1}
    assert all(part.records for part in read)


async def test_clients_find_a_broker_of_their_zone_among_the_replicas(zones: dict[str, KafkaStage]) -> None:
    wire = await zones["there"].connect()
    answer = await wire.ask(metadata(9, "t"))
    racks = {broker.node_id: broker.rack for broker in answer.brokers}
    assert sorted(str(rack) for rack in racks.values()) == ["here", "there"]
    for part in answer.topics[0].partitions:
        assert {racks[node] for node in part.replica_nodes} == {"here", "there"}


async def test_a_zone_without_a_broker_is_served_by_any_broker(zones: dict[str, KafkaStage]) -> None:
    await zones["here"].broker.close()
    await zones["there"].broker.log.barrier()
    read = await _fetched(zones["there"])
    assert {part.preferred_read_replica for part in read} == {-1}
    assert all(part.records for part in read)
