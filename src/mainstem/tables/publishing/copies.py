"""Deliver topics to their copies: Delta tables, and Iceberg tables in other catalogs.

A copy stores the next offset of each partition together with the records, in one commit. Delivery reads it from there,
so a delivery that is killed or overtaken neither loses nor repeats a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mainstem.api.lake import PartitionProgress, TableWork
from mainstem.errors import Unreachable, described
from mainstem.tables.copies import iceberg_of
from mainstem.tables.publishing.backoff import Backoff
from mainstem.tables.publishing.broker import CopyBroker


@dataclass
class DeliveryReport:
    commits: int = 0
    problems: dict[str, str] = field(default_factory=dict)  # topic → why its copy is behind
    waiting: set[str] = field(default_factory=set)  # topics in backoff, not tried in this run


class CopyDelivery(Protocol):
    """Delivers one partition of a topic."""

    def run(self) -> int:
        """Deliver what there is. Returns the number of commits."""
        ...


def deliver(broker: CopyBroker, works: Sequence[TableWork], backoff: Backoff | None = None) -> DeliveryReport:
    """Bring the copies of these topics up to date. One that fails does not stop the others."""
    report = DeliveryReport()
    backoff = backoff or Backoff()
    wanted = [work for work in works if work.copy]
    progress = {topic.topic: topic for topic in broker.status().topics} if wanted else {}
    for work in wanted:
        found = progress.get(work.topic)
        key = ("copy", work.table_id)
        if (last_error := backoff.waiting(key)) is not None:
            report.problems[work.topic] = last_error
            report.waiting.add(work.topic)
            continue
        try:
            for partition in found.partitions if found else ():
                report.commits += _delivery(broker, work, found.topic_id if found else "", partition).run()
        except Unreachable:
            raise
        except Exception as error:  # noqa: BLE001 - reported as this topic's problem
            report.problems[work.topic] = described(error)
            backoff.failed(key, report.problems[work.topic])
        else:
            backoff.succeeded(key)
    return report


def _delivery(
    broker: CopyBroker, work: TableWork, topic_id: str, partition: PartitionProgress
) -> CopyDelivery:
    if iceberg_of(work.copy):
        from mainstem.tables.publishing.iceberg_copy import IcebergDelivery

        return IcebergDelivery(broker, work, topic_id, partition)
    from mainstem.tables.publishing.delta import DeltaDelivery  # 60 MB: only where a topic has a Delta table

    return DeltaDelivery(broker, work, topic_id, partition)
