"""Lag metrics of consumer groups.

The number of series and their cost are bounded, because a scrape runs on the event loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from mainstem.broker.groups.offsets import OWN_PREFIX
from mainstem.broker.groups.service import Groups
from mainstem.broker.namespaces import shown_id
from mainstem.log.log import Log
from mainstem.metrics import Metric, one

GROUPS_MEASURED_MAX = 200  # consumer groups whose members and lag are published as metrics
GROUP_CURSORS_MEASURED_MAX = 10_000  # cursors of these groups that a scrape reads


class GroupLags:
    """How far consumer groups and share groups are behind."""

    def __init__(self, log: Log, groups: Groups) -> None:
        self._log = log
        self._groups = groups

    def metrics(self) -> Iterator[Metric]:
        """Groups with members first, then others up to the limit."""
        members = self._groups.members()
        names = self._groups.offsets.names()
        shown = list(islice(self._reported(), GROUPS_MEASURED_MAX))
        yield one(
            "mainstem_groups",
            "gauge",
            "Consumer groups that have committed offsets.",
            sum(1 for name in names if not name.startswith(OWN_PREFIX)),
        )
        yield _by_group("members", "Members of a group.", ((name, members.get(name, 0)) for name in shown))
        yield _by_group("lag_records", "Lag of a group in records.", self.of(shown))

    def measured(self) -> Iterator[tuple[str, int]]:
        """The lag of the groups that this broker coordinates, up to the limits."""
        return self.of(islice(self._reported(), GROUPS_MEASURED_MAX))

    def _reported(self) -> Iterator[str]:
        """Each group once, only those that this broker coordinates, without the broker's own cursors."""
        groups = self._groups
        for name in dict.fromkeys(
            (*groups.members(), *groups.offsets.names(), *self._log.ledger.shares.groups())
        ):
            if not name.startswith(OWN_PREFIX) and groups.coordinates(name):
                yield name

    def of(self, names: Iterable[str]) -> Iterator[tuple[str, int]]:
        """The lag of each group, until too many cursors were read.

        A group that reads a topic has read nothing of the partitions in which it has not committed."""
        log = self._log
        left = GROUP_CURSORS_MEASURED_MAX
        for name in names:
            cursors, shares = log.ledger.cursors.of_group(name), log.ledger.shares.of_group(name)
            left -= len(cursors) + len(shares)
            if left < 0:
                return
            behind = sum(
                share.left(*log.streams.of(stream).bounds(stream)) for stream, share in shares.items()
            )
            topics = {
                topic.topic_id: topic
                for topic in map(log.ledger.topics.of_stream, cursors)
                if topic is not None
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
