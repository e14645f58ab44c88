"""Copies of topics in another Iceberg catalog. The other catalog is that of a second server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyiceberg.catalog import Catalog, load_catalog

from mainstem.api.lake import Sources
from mainstem.client.broker import BrokerClient
from mainstem.errors import Unavailable
from mainstem.tables.publishing import iceberg_copy
from mainstem.tables.publishing.copies import deliver
from mainstem.tables.publishing.publisher import publish_tables

from .tabling import Tabling, numbers, tabling


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tabling]:
    with tabling(tmp_path_factory.mktemp("copied") / "data") as started:
        yield started


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tabling]:
    with tabling(tmp_path_factory.mktemp("other") / "data") as started:
        yield started


@pytest.fixture(autouse=True)
def configured(other: Tabling, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """The other catalog, by the name that PyIceberg's configuration gives it."""
    properties = {"type": "rest", "uri": f"{other.url}/iceberg"}

    def load(name: str) -> Catalog:
        if name != "other":
            raise ValueError(f"no catalog {name!r}")
        return load_catalog(name, **properties)

    monkeypatch.setattr(iceberg_copy, "load_catalog", load)
    return load("other")


def rows(catalog: Catalog, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = catalog.load_table(name).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["_offset"])


def test_a_topic_is_copied_once_and_goes_on_with_new_columns(lake: Tabling, configured: Catalog) -> None:
    lake.topic("orders")
    status = lake.enable("orders", iceberg="other.sales.orders", schema=[{"name": "id", "type": "long"}])
    assert (status["iceberg"], status["delta"]) == ("other.sales.orders", "")
    lake.write("orders", {"id": 1, "at": "x"}, {"id": "wrong"})
    assert publish_tables(lake.broker).problems == {}  # straight from the log: no part is made yet
    columns = [{"name": "id", "type": "long"}, {"name": "at", "type": "string"}]
    lake.enable("orders", schema=columns)
    lake.write("orders", {"id": 2, "at": "y"})
    publish_tables(lake.broker)
    publish_tables(lake.broker)
    found = rows(configured, "sales.orders")
    assert [(row["_offset"], row["id"], row["at"]) for row in found] == [
        (0, 1, None),
        (1, None, None),
        (2, 2, "y"),
    ]
    assert list(found[0])[:6] == ["_partition_id", "_offset", "_timestamp", "_key", "_value", "_headers"]


def test_fields_inside_columns_come_later_too(lake: Tabling, configured: Catalog) -> None:
    lake.topic("nested")

    def columns(fields: str) -> list[dict[str, str]]:
        kinds = {
            "s": f"struct<{fields}>",
            "l": f"list<struct<{fields}>>",
            "m": f"map<string, struct<{fields}>>",
        }
        return [{"name": name, "type": kind} for name, kind in kinds.items()]

    lake.enable("nested", iceberg="other.sales.nested", schema=columns("a: int"))
    lake.write("nested", {"s": {"a": 1}, "l": [{"a": 1}], "m": {"k": {"a": 1}}})
    assert publish_tables(lake.broker).problems == {}
    lake.enable("nested", schema=columns("a: long, b: string"))
    row = {"a": 1 << 40, "b": "x"}
    lake.write("nested", {"s": row, "l": [row], "m": {"k": row}})
    assert publish_tables(lake.broker).problems == {}
    first, second = rows(configured, "sales.nested")
    assert (first["s"], first["l"], dict(first["m"])) == (
        {"a": 1, "b": None},
        [{"a": 1, "b": None}],
        {"k": {"a": 1, "b": None}},
    )
    assert (second["s"], second["l"], dict(second["m"])) == (row, [row], {"k": row})


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


def test_of_two_deliveries_at_once_neither_doubles_a_record(lake: Tabling, configured: Catalog) -> None:
    lake.topic("raced")
    lake.enable("raced", iceberg="other.sales.raced")
    lake.write("raced", *numbers(0, 2))
    publish_tables(lake.broker)
    lake.write("raced", *numbers(2, 4))
    racing = Racing(lake.broker)
    deliver(racing, [work for work in lake.broker.tables().tables if work.name == "raced"])
    assert racing.raced == 1
    assert [row["_offset"] for row in rows(configured, "sales.raced")] == [0, 1, 2, 3]


def test_a_commit_whose_answer_is_lost_is_not_repeated(
    lake: Tabling, configured: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.topic("lost")
    lake.enable("lost", iceberg="other.sales.lost")
    lake.write("lost", *numbers(0, 3))
    commit = iceberg_copy.OneAttempt.commit_table

    def lost(attempt: Any, *about: Any) -> None:
        commit(attempt, *about)
        raise ConnectionError("the answer was lost")

    works = [work for work in lake.broker.tables().tables if work.name == "lost"]
    with monkeypatch.context() as patched:
        patched.setattr(iceberg_copy.OneAttempt, "commit_table", lost)
        assert "the answer was lost" in deliver(lake.broker, works).problems["lost"]
    assert deliver(lake.broker, works).commits == 0
    assert [row["_offset"] for row in rows(configured, "sales.lost")] == [0, 1, 2]


def test_large_ranges_take_several_commits_and_deleted_records_none(
    lake: Tabling, configured: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_copy, "APPEND_BYTES", 1)
    lake.topic("parts")
    lake.write("parts", *numbers(0, 6))
    lake.ask("POST", "/v0/topics/parts/delete", {"before_seq": 3})
    lake.enable("parts", iceberg="other.sales.parts")
    lake.write("parts", *numbers(6, 9))
    publish_tables(lake.broker)
    assert [row["_offset"] for row in rows(configured, "sales.parts")] == list(range(2, 9))


def test_an_unknown_catalog_is_a_problem_of_its_topic(lake: Tabling) -> None:
    lake.topic("nowhere")
    lake.enable("nowhere", iceberg="elsewhere.sales.nowhere")
    lake.write("nowhere", *numbers(0, 1))
    problem = publish_tables(lake.broker).problems["nowhere"]
    assert "PYICEBERG_CATALOG__ELSEWHERE__URI" in problem
    assert Unavailable.__name__ not in problem


def test_a_catalog_that_does_not_answer_does_not_stop_the_others(
    lake: Tabling, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        hanging = {"type": "rest", "uri": f"http://{host}:{port}"}
        monkeypatch.setattr(iceberg_copy, "load_catalog", lambda name: load_catalog(name, **hanging))
        monkeypatch.setattr(iceberg_copy, "REQUEST_S", (0.5, 0.5), raising=False)
        lake.topic("silent")
        lake.enable("silent", iceberg="hanging.sales.silent")
        lake.write("silent", *numbers(0, 1))
        works = [work for work in lake.broker.tables().tables if work.name == "silent"]
        with ThreadPoolExecutor(1) as pool:
            delivered = pool.submit(deliver, lake.broker, works)
            try:
                problems = delivered.result(10).problems
            finally:
                silent.close()  # which ends a delivery that waits
    assert "timed out" in problems["silent"]


def test_a_topic_has_one_copy_with_a_whole_name(lake: Tabling) -> None:
    lake.topic("named")
    for body, why in (
        ({"iceberg": "orders"}, "CATALOG.NAMESPACE.TABLE"),
        ({"iceberg": "a.b.c", "delta": "/tmp/d"}, "one copy"),
    ):
        answer = lake.http.put("/v0/topics/named/table", json={"enabled": True, **body})
        assert answer.status_code == 400
        assert why in answer.text
