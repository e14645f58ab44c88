"""What the broker publishes as metrics, for all doors."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from typing import TYPE_CHECKING

from mainstem import limits
from mainstem.metrics import Metric, one
from mainstem.tables.lake import Lake

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker


def broker_metrics(broker: Broker) -> Iterator[Metric]:
    """Every metric of the broker. A scrape runs on the event loop, so each part bounds its series and their cost."""
    yield from _storage_metrics(broker)
    yield from broker.log.commit_metrics.published()
    yield from broker.log.waiting_appends.published()
    yield from broker.group_lags.metrics()
    yield from _lake_metrics(broker.lake)
    for part in (
        broker.sql,
        broker.rates,
        broker.audit,
        broker.schemas,
        broker.shares,
        broker.lake_reports,
        broker.pipeline_reports,
    ):
        yield from part.published()


def _storage_metrics(broker: Broker) -> Iterator[Metric]:
    log = broker.log
    streams = log.ledger.streams
    yield one("mainstem_topics", "gauge", "Number of topics.", len(log.ledger.topics))
    held = int(streams.records[: streams.count].sum()) - log.missing.count()
    yield one("mainstem_records", "gauge", "Records in all topics.", held)
    yield from log.missing.metrics()
    yield one(
        "mainstem_clock_ahead_ms",
        "gauge",
        "How far the system clock is ahead of the time that the server keeps, or ledger time ahead of the clock.",
        broker.clock_ahead_ms,
    )
    yield one("mainstem_bytes", "gauge", "Bytes of all records, as caps count them.", streams.total_bytes())
    yield one(
        "mainstem_commits_total", "counter", "Commits applied since the log was created.", log.ledger.position
    )
    yield one("mainstem_idempotency_keys", "gauge", "Stored idempotency keys.", len(log.ledger.idempotency))
    yield one(
        "mainstem_writable",
        "gauge",
        "1 while the server accepts writes, otherwise 0.",
        log.unwritable is None,
    )
    yield one(
        "mainstem_write_refusals_total",
        "counter",
        "Groups of writes refused because the disk was full or no file descriptor was free.",
        log.write_refusals,
    )
    if log.tiering is not None:
        yield from log.tiering.metrics()
    if log.repacker is not None:
        yield from log.repacker.metrics()


def _lake_metrics(lake: Lake) -> Iterator[Metric]:
    """The lag of Parquet files and tables, for the topics with the largest lag."""
    lags = lake.lags()
    yield one(
        "mainstem_lake_lag_records",
        "gauge",
        "Records of all topics that wait for conversion to Parquet.",
        sum(lag.records for lag in lags),
    )
    for name, help, worst in (
        (
            "mainstem_lake_topic_lag_records",
            "Records of a topic that are not in Parquet yet.",
            nlargest(limits.LAKE_TOPICS_MEASURED_MAX, ((lag.records, lag.topic) for lag in lags)),
        ),
        (
            "mainstem_table_lag_records",
            "Records of a topic that are not in its table yet.",
            nlargest(
                limits.LAKE_TOPICS_MEASURED_MAX,
                ((lag.table_records, lag.topic) for lag in lags if lag.table_records is not None),
            ),
        ),
    ):
        samples = tuple(((("topic", topic),), float(records)) for records, topic in worst)
        help = f"{help} Of at most {limits.LAKE_TOPICS_MEASURED_MAX} topics, the furthest behind."
        yield Metric(name, "gauge", help, samples)
