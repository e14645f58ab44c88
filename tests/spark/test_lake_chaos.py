"""Drivers, their workers and the broker are killed at random while producers write: every record is there once.

With --chaos each seed takes minutes, on Spark; a normal run takes a slice of one, its workers being Python's alone.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from .chaos.killing import Victims
from .chaos.views import Rereader, Row, by_iceberg, by_kafka, by_spark_parquet, by_spark_source, open_table
from .chaos.writers import (
    DOOMED,
    PARTITIONS,
    WAIT_S,
    Deleter,
    IdempotentWriter,
    TransactionalWriter,
    Writer,
    delete,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LONG_S, _LONG_PAUSE_S = 250.0, 8.0
_SLICE_S, _SLICE_PAUSE_S = 7.0, 1.0
_TOPICS = ("keyed", "trimmed", "paid")
_DELETED_FROM = {"keyed", "trimmed"}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_log_and_tables_agree_on_every_record_after_any_kill(
    tmp_path: Path, lake_seed: int, chaos: bool, request: pytest.FixtureRequest
) -> None:
    spark: SparkSession | None = request.getfixturevalue("spark") if chaos else None
    pick = random.Random(lake_seed)
    with Victims(tmp_path / "data", with_spark=chaos) as victims:
        with httpx.Client(base_url=victims.url, timeout=WAIT_S) as client:
            for topic in _TOPICS:
                _make(victims, client, topic)
            keyed = IdempotentWriter("keyed", random.Random(f"{lake_seed} keyed"), victims.bootstrap)
            trimmed = IdempotentWriter("trimmed", random.Random(f"{lake_seed} trimmed"), victims.bootstrap)
            paid = TransactionalWriter("paid", random.Random(f"{lake_seed} paid"), victims.bootstrap)
            deleter = Deleter(victims.url, "keyed", "trimmed", random.Random(f"{lake_seed} deleter"))
            rereader = Rereader(victims.bootstrap, _TOPICS)
            writers: tuple[Writer, ...] = (keyed, trimmed, paid, deleter)
            victims.start_driver()
            for thread in (*writers, rereader):
                thread.start()
            length = (_LONG_S, _LONG_PAUSE_S) if chaos else (_SLICE_S, _SLICE_PAUSE_S)
            _kill_for(*length, victims, pick, writers)
            for writer in writers:
                writer.finish()
        with httpx.Client(base_url=victims.url, timeout=WAIT_S) as client:
            for key in DOOMED:
                for partition in range(PARTITIONS):
                    delete(client, "keyed", partition, {"match": key})
            _settled(victims, client)
            rereader.finish()
            seen = {topic: _agreed(victims, topic, spark, rereader) for topic in _TOPICS}
            facts = _facts(victims, client)
    _check_keyed(keyed, seen["keyed"])
    _check_trimmed(trimmed, seen["trimmed"])
    _check_paid(paid, seen["paid"])
    told = paid.transactions
    logging.getLogger(__name__).warning(
        "seed %d: killed %s; %s; read %d times meanwhile; %d deleted; %d transactions committed, %d aborted, "
        "%d unknown; records: %s",
        lake_seed,
        dict(victims.kills),
        facts,
        rereader.rounds,
        deleter.deleted,
        len(told.committed),
        len(told.aborted),
        len(told.unknown),
        {topic: len(rows) for topic, rows in seen.items()},
    )
    assert victims.kills


def _make(victims: Victims, client: httpx.Client, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": victims.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(WAIT_S)
    client.put(f"/v0/topics/{topic}/table", json={"enabled": True}).raise_for_status()


def _kill_for(
    seconds: float, pause_s: float, victims: Victims, pick: random.Random, writers: tuple[Writer, ...]
) -> None:
    until = time.monotonic() + seconds
    pace = threading.Event()
    while time.monotonic() < until:
        pace.wait(pick.uniform(0.0, pause_s))
        victims.kill_one(pick)
        for writer in writers:
            if writer.fault is not None:
                raise writer.fault


def _settled(victims: Victims, client: httpx.Client) -> None:
    """Wait until every record is in a file, every file is what it should be, and every table shows it."""
    deadline = time.monotonic() + WAIT_S
    pace = threading.Event()
    while True:
        found = _progress(client)
        behind = [
            (
                partition["end"],
                partition["materialised_to"],
                partition["published_to"],
                partition["stale_parts"],
            )
            for topic in found.values()
            for partition in topic["partitions"]
            if not partition["end"] == partition["materialised_to"] == partition["published_to"]
            or partition["stale_parts"]
        ]
        if not behind and not _unpublished(client):
            return
        driver = victims.driver
        assert driver is not None
        assert driver.process.poll() is None, driver.told()
        assert time.monotonic() < deadline, (behind, driver.told())
        pace.wait(0.2)


def _progress(client: httpx.Client) -> dict[str, Any]:
    status = client.get("/v0/lake/status").raise_for_status().json()
    return {topic["topic"]: topic for topic in status["topics"]}


def _unpublished(client: httpx.Client) -> bool:
    works = client.get("/v0/lake/tables").raise_for_status().json()
    return any(work.get("changes") for work in works["tables"])


def _agreed(victims: Victims, topic: str, spark: SparkSession | None, rereader: Rereader) -> list[Row]:
    """The topic's records, once every way to read them gives the same."""
    rows = by_kafka(victims.bootstrap, topic)
    rereader.check(topic, rows)
    table = open_table(victims.url, topic)
    assert by_iceberg(table) == rows
    if spark is not None:
        assert by_spark_parquet(spark, table) == rows
        assert by_spark_source(spark, victims.url, topic) == rows
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert int(snapshot.summary["total-records"] or -1) == len(rows)
    allowed = {"append", "replace"}
    if topic in _DELETED_FROM:
        allowed |= {"delete", "overwrite"}  # `overwrite`: rows of a part were deleted after it was published
    assert {each.summary.operation.value for each in table.metadata.snapshots if each.summary} <= allowed
    return rows


def _facts(victims: Victims, client: httpx.Client) -> dict[str, Any]:
    progress = _progress(client)
    return {
        "snapshots": {
            topic: open_table(victims.url, topic).metadata.last_sequence_number for topic in _TOPICS
        },
        "generations": {
            topic: max(max(one["generations"], default=0) for one in progress[topic]["partitions"])
            for topic in _TOPICS
        },
    }


# What the writers were told


def _check_keyed(writer: IdempotentWriter, rows: list[Row]) -> None:
    found = {row[:2]: row.value for row in rows}
    left = {place: value for place, value in writer.acked.items() if value not in writer.doomed}
    assert {place: found.get(place) for place in left} == left
    assert len(set(found.values())) == len(found)
    assert set(found.values()) <= {*left.values(), *writer.unknown} - writer.doomed


def _check_trimmed(writer: IdempotentWriter, rows: list[Row]) -> None:
    found = {row[:2]: row.value for row in rows}
    first = {
        partition: min((at for one, at in found if one == partition), default=1 << 62)
        for partition in range(PARTITIONS)
    }
    left = {place: value for place, value in writer.acked.items() if place[1] >= first[place[0]]}
    assert {place: found.get(place) for place in left} == left
    assert len(set(found.values())) == len(found)
    assert set(found.values()) <= {*left.values(), *writer.unknown}


def _check_paid(writer: TransactionalWriter, rows: list[Row]) -> None:
    found = [row.value or b"" for row in rows]
    told = writer.transactions
    assert len(set(found)) == len(found)
    for values in told.unknown:
        assert not values & set(found) or values <= set(found)
    uncertain = set().union(*told.unknown)
    assert set(found) - uncertain == set().union(*told.committed)
