"""Ranges as workers read them: from the log, from Parquet, and through the broker when an object is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mainstem.api.lake import PlanRequest, Sources
from mainstem.client.broker import BrokerClient
from mainstem.errors import DataLost, NotFound
from mainstem.spark.source import ranges
from mainstem.spark.source.offsets import PartitionRange
from mainstem.spark.source.options import SourceOptions
from mainstem.spark.source.ranges import RangeRows
from mainstem.tables.parts.materialise import materialise
from mainstem.testing.server import ServerProcess

from .conftest import Broker

RECORDS = 40


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A server whose topics are all made into parts."""
    folder = tmp_path_factory.mktemp("lake")
    with ServerProcess(folder / "data", "--text", "off", "--lake-topics", "all") as process:
        found = Broker(process)
        with found.client:
            yield found


def filled(lake: Broker, topic: str) -> list[tuple[int, bytes]]:
    lake.create(topic)
    for first in range(0, RECORDS, 10):
        lake.write(topic, *(b"%d" % i for i in range(first, first + 10)))
    return [(i, b"%d" % i) for i in range(RECORDS)]


def made_into_parts(lake: Broker, topic: str) -> None:
    with BrokerClient(lake.url) as broker:
        plan = broker.plan(PlanRequest("test", topics=(topic,), kinds=("materialise",)))
        assert plan.tasks
        for task in plan.tasks:
            broker.publish(materialise(task))


def read(
    lake: Broker, topic: str, start: int = 0, end: int = RECORDS, **options: str
) -> list[tuple[int, bytes]]:
    parsed = SourceOptions.parse({"url": lake.url, "subscribe": topic, **options}, streaming=False)
    with BrokerClient(lake.url) as broker:
        found = []
        for rows in RangeRows(broker, PartitionRange(topic, 0, start, end), parsed):
            columns = rows.column("_offset").to_pylist(), rows.column("_value").to_pylist()
            found += list(zip(*columns, strict=True))
        return found


def test_every_range_is_the_same_before_between_and_after_parts_are_made(lake: Broker, topic: str) -> None:
    records = filled(lake, topic)
    for step in ("log", "parts", "parts and log"):
        if step == "parts":
            made_into_parts(lake, topic)
        elif step == "parts and log":
            lake.write(topic, *(b"%d" % i for i in range(RECORDS, RECORDS + 5)))
            records += [(i, b"%d" % i) for i in range(RECORDS, RECORDS + 5)]
        for start, end in ((0, len(records)), (3, 17), (9, 11), (25, len(records)), (7, 8)):
            assert read(lake, topic, start, end) == records[start:end], step
            assert read(lake, topic, start, end, readFrom="broker") == records[start:end], step


def test_an_object_that_vanished_half_way_is_read_through_the_broker(
    lake: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = filled(lake, topic)
    whole = ranges.source_rows

    def vanishing(sources: Sources, name: str, partition: int, **more: Any) -> Iterator[object]:
        for rows in whole(sources, name, partition, **more):
            yield rows.slice(0, 7)
            raise NotFound("collected meanwhile")

    monkeypatch.setattr(ranges, "source_rows", vanishing)
    assert read(lake, topic) == records


def test_a_file_out_of_reach_is_read_through_the_broker(
    lake: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = filled(lake, topic)
    asked = BrokerClient.sources

    def elsewhere(self: BrokerClient, *range: object) -> Sources:
        import msgspec

        found = asked(self, *range)  # type: ignore[arg-type]
        wal = tuple(msgspec.structs.replace(one, url="file:///nowhere/at-all") for one in found.wal)
        return msgspec.structs.replace(found, wal=wal)

    monkeypatch.setattr(BrokerClient, "sources", elsewhere)
    assert read(lake, topic) == records


def test_what_is_only_in_the_broker_is_read_from_there(
    lake: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = filled(lake, topic)
    asked = BrokerClient.sources

    def partly(self: BrokerClient, *range: object) -> Sources:
        import msgspec

        found = asked(self, *range)  # type: ignore[arg-type]
        return msgspec.structs.replace(found, unreachable=((22, found.end),))

    monkeypatch.setattr(BrokerClient, "sources", partly)
    assert read(lake, topic) == records
    assert read(lake, topic, 30, 35) == records[30:35]


def test_a_lost_file_fails_the_read_by_name_or_is_passed(topic: str, serve: Callable[..., Any]) -> None:
    with serve("--lake-topics", "all") as process:
        lake = Broker(process)
        with lake.client, BrokerClient(lake.url) as broker:
            filled(lake, topic)
            made_into_parts(lake, topic)
            lake.write(topic, b"after")
            sources = broker.sources(topic, 0, 0, RECORDS)
        assert sources.parts
    for part in sources.parts:
        for file in part.files:
            Path(sources.store.removeprefix("file://"), file.key).unlink()
    with serve("--lake-topics", "all") as process:  # started again, it has nothing in memory
        lake = Broker(process)
        with lake.client:
            lost = rf"offsets \[0, {RECORDS}\) of topic '{topic}', partition 0, are gone"
            with pytest.raises(DataLost, match=lost):
                read(lake, topic)
            kept = read(lake, topic, 0, RECORDS + 1, failOnDataLoss="false")
            assert kept == [(RECORDS, b"after")]


def test_offsets_past_the_end_are_a_loss(lake: Broker, topic: str) -> None:
    filled(lake, topic)
    with pytest.raises(DataLost, match=rf"offsets \[{RECORDS}, 50\)"):
        read(lake, topic, 0, 50)
    assert len(read(lake, topic, 0, 50, failOnDataLoss="false")) == RECORDS
