"""Lag metrics of consumer groups and the lake.

The number of series and their cost are bounded, because a scrape runs on the event loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest
from itertools import islice

from mainstem import limits
from mainstem.broker.groups.offsets import OWN_PREFIX
from mainstem.broker.groups.service import Groups
from mainstem.broker.namespaces import shown_id
from mainstem.log.log import Log
from mainstem.metrics import Metric, one
from mainstem.tables.lake import Lake

GROUPS_MEASURED_MAX = 200  # consumer groups whose members and lag are published as metrics
GROUP_CURSORS_MEASURED_MAX = 10_000  # cursors of these groups that a scrape reads


def group_metrics(log: Log, groups: Groups) -> Iterator[Metric]:
    """Groups with members first, then others up to the limit."""
    members = groups.members()
    names = groups.offsets.names()
    everybody = [*members, *names, *log.ledger.shares.groups()]
    shown = list(islice(_reported_groups(groups, everybody), GROUPS_MEASURED_MAX))
    yield one(
        "mainstem_groups",
        "gauge",
        "Consumer groups that have committed offsets.",
        sum(1 for name in names if not name.startswith(OWN_PREFIX)),
    )
    yield _by_group("members", "Members of a group.", ((name, members.get(name, 0)) for name in shown))
    yield _by_group("lag_records", "Lag of a group in records.", lags(log, shown))


def _reported_groups(groups: Groups, names: Iterable[str]) -> Iterator[str]:
    """Each group once, only those that this broker coordinates, without the broker's own cursors."""
    for name in dict.fromkeys(names):
        if not name.startswith(OWN_PREFIX) and groups.coordinates(name):
            yield name


def measured_lags(log: Log, groups: Groups) -> Iterator[tuple[str, int]]:
    """The lag of the groups that this broker coordinates, up to the limits."""
    everybody = [*groups.members(), *groups.offsets.names(), *log.ledger.shares.groups()]
    return lags(log, islice(_reported_groups(groups, everybody), GROUPS_MEASURED_MAX))


def lags(log: Log, names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The lag of each group, until too many cursors were read.

    A group that reads a topic has read nothing of the partitions in which it has not committed."""
    left = GROUP_CURSORS_MEASURED_MAX
    for name in names:
        cursors, shares = log.ledger.cursors.of_group(name), log.ledger.shares.of_group(name)
        left -= len(cursors) + len(shares)
        if left < 0:
            return
        behind = sum(share.left(*log.streams.of(stream).bounds(stream)) for stream, share in shares.items())
        topics = {
            topic.topic_id: topic for topic in map(log.ledger.topics.of_stream, cursors) if topic is not None
        }
        for stream in (stream for topic in topics.values() for stream in topic.streams):
            start, end = log.streams.of(stream).bounds(stream)
            cursor = cursors.get(stream)
            behind += max(0, end - max(start if cursor is None else cursor.offset, start))
        yield name, behind


def _by_group(name: str, help: str, values: Iterable[tuple[str, int]]) -> Metric:
    samples = tuple(((("group", shown_id(group)),), float(value)) for group, value in values)
    help = f"{help} Of at most {GROUPS_MEASURED_MAX} groups, those with members first."
    return Metric(f"mainstem_group_{name}", "gauge", help, samples)


def lake_metrics(lake: Lake) -> Iterator[Metric]:
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
