"""How far those who follow the log are behind it, as metrics: consumer groups and the lake.

Their number is bounded and so is what they cost, whatever there is: a scrape runs on the event loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest
from itertools import islice

from mainstem import limits
from mainstem.broker.groups.offsets import OWN_PREFIX
from mainstem.broker.groups.service import Groups
from mainstem.broker.namespaces import shown_id
from mainstem.broker.tables.lake import Lake
from mainstem.log.log import Log
from mainstem.metrics import Metric, one


def group_metrics(log: Log, groups: Groups) -> Iterator[Metric]:
    """Groups that have members come first, then as many others as there is room for."""
    members = groups.members()
    names = groups.offsets.names()
    everybody = [*members, *names, *log.ledger.shares.groups()]
    shown = list(islice(_reported_groups(groups, everybody), limits.GROUPS_MEASURED_MAX))
    yield one(
        "mainstem_groups",
        "gauge",
        "Consumer groups that have committed offsets.",
        sum(1 for name in names if not name.startswith(OWN_PREFIX)),
    )
    yield _by_group("members", "Members of a group.", ((name, members.get(name, 0)) for name in shown))
    yield _by_group("lag_records", "Lag of a group in records.", _lags(log, shown))


def _reported_groups(groups: Groups, names: Iterable[str]) -> Iterator[str]:
    """Each once: those that this broker looks after. Cursors of our own programs are nobody's group."""
    for name in dict.fromkeys(names):
        if not name.startswith(OWN_PREFIX) and groups.coordinates(name):
            yield name


def _lags(log: Log, names: Iterable[str]) -> Iterator[tuple[str, int]]:
    left = limits.GROUP_CURSORS_MEASURED_MAX
    for name in names:
        cursors, shares = log.ledger.cursors.of_group(name), log.ledger.shares.of_group(name)
        left -= len(cursors) + len(shares)
        if left < 0:
            return
        behind = sum(share.left(*log.streams.of(stream).bounds(stream)) for stream, share in shares.items())
        for stream, cursor in cursors.items():
            start, end = log.streams.of(stream).bounds(stream)
            behind += max(0, end - max(cursor.offset, start))
        yield name, behind


def _by_group(name: str, help: str, values: Iterable[tuple[str, int]]) -> Metric:
    samples = tuple(((("group", shown_id(group)),), float(value)) for group, value in values)
    help = f"{help} Of at most {limits.GROUPS_MEASURED_MAX} groups, those with members first."
    return Metric(f"mainstem_group_{name}", "gauge", help, samples)


def lake_metrics(lake: Lake) -> Iterator[Metric]:
    """How far the Parquet files and the tables are behind, of the topics that are the furthest behind."""
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
