from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from mainstem.api.lake import Sources
from mainstem.client.broker import BrokerClient
from mainstem.tables.publishing import copies
from mainstem.tables.publishing.backoff import LAKE_RETRY_S, Backoff
from mainstem.tables.publishing.copies import deliver
from mainstem.tables.publishing.delta import DeltaDelivery
from mainstem.tables.publishing.publisher import publish_tables

from .tabling import Tabling, numbers, tabling


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tabling]:
    with tabling(tmp_path_factory.mktemp("delta") / "data") as started:
        yield started


def rows(path: Path) -> list[dict[str, object]]:
    found = DeltaTable(path).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: row["_offset"])


def values(path: Path) -> list[object]:
    return [json.loads(str(row["_value"], "utf-8")) for row in rows(path)]  # type: ignore[call-overload]


def test_a_topic_is_delivered_once_and_goes_on(lake: Tabling, tmp_path: Path) -> None:
    path = tmp_path / "delivered"
    lake.topic("out")
    lake.enable("out", delta=str(path))
    assert publish_tables(lake.broker).commits == 0
    lake.write("out", *numbers(0, 5))
    assert publish_tables(lake.broker).commits == 1  # straight from the log: no part is made yet
    lake.work()
    publish_tables(lake.broker)
    assert values(path) == numbers(0, 5)
    lake.write("out", *numbers(5, 8))
    lake.work()
    publish_tables(lake.broker)
    publish_tables(lake.broker)
    assert values(path) == numbers(0, 8)
    assert list(rows(path)[0]) == ["_partition_id", "_offset", "_timestamp", "_key", "_value", "_headers"]


def test_columns_come_along_and_are_added(lake: Tabling, tmp_path: Path) -> None:
    path = tmp_path / "typed"
    lake.topic("outtyped")
    lake.write("outtyped", {"a": 1, "b": "x"}, {"a": "wrong"})
    lake.enable("outtyped", delta=str(path), schema=[{"name": "a", "type": "long"}])
    publish_tables(lake.broker)
    lake.enable("outtyped", schema=[{"name": "a", "type": "long"}, {"name": "b", "type": "string"}])
    lake.write("outtyped", {"a": 2, "b": "y"})
    publish_tables(lake.broker)
    assert [(row["a"], row["b"]) for row in rows(path)] == [(1, None), (None, None), (2, "y")]


class Racing:
    """A broker that lets another delivery finish once the sources of this one are known."""

    def __init__(self, broker: BrokerClient) -> None:
        self._broker = broker
        self.raced = 0
        self.status = broker.status

    def sources(self, topic: str, partition: int, start: int, end: int) -> Sources:
        found = self._broker.sources(topic, partition, start, end)
        self.raced += deliver(self._broker, self._broker.tables().tables).commits
        return found


def test_types_that_delta_lacks_become_bytes_and_numbers(lake: Tabling, tmp_path: Path) -> None:
    path = tmp_path / "kinds"
    kinds = {
        "id": "uuid",
        "at": "time",
        "two": "fixed(2)",
        "ids": "map<string, list<uuid>>",
        "clock": "timestamp_ntz",
    }
    lake.topic("kinds")
    lake.enable(
        "kinds", delta=str(path), schema=[{"name": name, "type": kind} for name, kind in kinds.items()]
    )
    id = "00000000-0000-0000-0000-000000000007"
    lake.write(
        "kinds",
        {"id": id, "at": "00:00:01", "two": "YWI=", "ids": {"k": [id]}, "clock": "2026-01-02T03:04:05"},
    )
    assert publish_tables(lake.broker).problems == {}
    (row,) = rows(path)
    octets = bytes(15) + b"\7"
    assert {name: row[name] for name in kinds} == {
        "id": octets,
        "at": 1_000_000,
        "two": b"ab",
        "ids": [("k", [octets])],
        "clock": datetime.datetime(2026, 1, 2, 3, 4, 5),
    }


def test_of_two_deliveries_at_once_neither_doubles_a_record(lake: Tabling, tmp_path: Path) -> None:
    path = tmp_path / "raced"
    lake.topic("outraced")
    lake.enable("outraced", delta=str(path))
    lake.write("outraced", *numbers(0, 2))
    publish_tables(lake.broker)
    lake.write("outraced", *numbers(2, 4))
    racing = Racing(lake.broker)
    works = [work for work in lake.broker.tables().tables if work.name == "outraced"]
    deliver(racing, works)
    assert racing.raced == 1
    assert values(path) == numbers(0, 4)


def test_what_the_topic_lost_first_is_passed_over(lake: Tabling, tmp_path: Path) -> None:
    path = tmp_path / "short"
    lake.topic("outshort")
    lake.write("outshort", *numbers(0, 6))
    lake.ask("POST", "/v0/topics/outshort/delete", {"before_seq": 3})
    lake.enable("outshort", delta=str(path))
    publish_tables(lake.broker)
    assert values(path) == numbers(2, 6)


def test_a_place_that_cannot_be_written_says_so_and_holds_up_nobody(lake: Tabling, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for topic, place in (("outnowhere", "file"), ("outsomewhere", "folder")):
        lake.topic(topic)
        lake.write(topic, *numbers(0, 1))
        lake.enable(topic, delta=str(tmp_path / place))
    report = deliver(lake.broker, lake.broker.tables().tables)
    assert list(report.problems) == ["outnowhere"]
    assert "Delta table" in report.problems["outnowhere"]
    assert values(tmp_path / "folder") == numbers(0, 1)


def test_any_exception_is_a_problem_of_its_topic_and_is_tried_again_later(
    lake: Tabling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("outpoisoned", "outsound"):
        lake.topic(topic)
        lake.write(topic, *numbers(0, 1))
        lake.enable(topic, delta=str(tmp_path / topic))
    works = [work for work in lake.broker.tables().tables if work.name in ("outpoisoned", "outsound")]
    works.sort(key=lambda work: work.name)
    now = 0.0
    backoff = Backoff(lambda: now)
    append = DeltaDelivery._append

    def poisoned(delivery: Any, *about: Any) -> bool:
        if delivery._work.topic == "outpoisoned":
            raise OverflowError("date value out of range")
        return append(delivery, *about)

    with monkeypatch.context() as poison:
        poison.setattr(DeltaDelivery, "_append", poisoned)
        report = deliver(lake.broker, works, backoff)
    assert report.problems == {"outpoisoned": "OverflowError: date value out of range"}
    assert values(tmp_path / "outsound") == numbers(0, 1)
    waiting = deliver(lake.broker, works, backoff)
    assert (waiting.problems, waiting.waiting) == (report.problems, {"outpoisoned"})
    now += LAKE_RETRY_S
    assert deliver(lake.broker, works, backoff).problems == {}
    assert values(tmp_path / "outpoisoned") == numbers(0, 1)


def test_delivery_that_fails_as_a_whole_hides_nothing_that_was_published(
    lake: Tabling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic, url in (("outmissing", str(tmp_path / "missing")), ("plain", "")):
        lake.topic(topic)
        lake.write(topic, *numbers(0, 1))
        lake.enable(topic, delta=url)
    lake.work()

    def missing(*about: object) -> None:
        raise ImportError("no module named deltalake")

    monkeypatch.setattr(copies, "deliver", missing)
    done = publish_tables(lake.broker)
    assert done.commits >= 2
    assert "no module named deltalake" in done.problems["outmissing"]
    assert "plain" not in done.problems
    assert lake.values("outmissing") == lake.values("plain") == numbers(0, 1)
