"""What a Streams topology needs of the topics: how many tasks it has, and which internal topics are missing (KIP-1071).

The number of partitions of an internal topic follows from what flows into it:

| topic | partitions |
|---|---|
| repartition topic | as declared; else the most partitions among the inputs of the subtopologies that write to it |
| topics of a copartition group | equal: repartition topics without a declared number follow the others |
| changelog | the most partitions among the inputs of its subtopology, which is its number of tasks |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from mainstem.errors import InvalidTopology
from mainstem.ledger.topology import InternalTopic, Subtopology, Topology

__all__ = [
    "GroupStatus",
    "InternalTopic",
    "StatusCode",
    "Subtopology",
    "Topology",
    "TopologyTopics",
    "Workload",
]

TASKS_MAX = 100_000  # of one topology
TOPOLOGY_SUBTOPOLOGIES_MAX = 1_000
_NAMES_SHOWN = 5

PartitionCount = Callable[[str], int | None]  # of an existing topic


class StatusCode(IntEnum):
    """Why members have no tasks, or must stop. These are Kafka's codes."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4


class GroupStatus(NamedTuple):
    code: StatusCode
    detail: str


class Workload(NamedTuple):
    """One subtopology, as the assignor sees it."""

    tasks: int
    stateful: bool


@dataclass(frozen=True, slots=True)
class TopologyTopics:
    """Without a problem, all topics exist and tasks can be assigned."""

    workloads: Mapping[str, Workload]  # subtopology id → its tasks; empty if topics are missing or wrong
    partitions: Mapping[str, int]  # internal topic → its number of partitions
    missing: tuple[InternalTopic, ...] = ()  # to create, with their number of partitions
    problem: GroupStatus | None = None

    @property
    def ready(self) -> bool:
        return self.problem is None


class _Unfit(Exception):
    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = GroupStatus(code, detail)


def check_topology(topology: Topology) -> None:
    """Raises InvalidTopology if no topics could fit."""
    if not 1 <= len(topology.subtopologies) <= TOPOLOGY_SUBTOPOLOGIES_MAX:
        raise InvalidTopology(f"a topology has 1 to {TOPOLOGY_SUBTOPOLOGIES_MAX} subtopologies")
    ids = {one.subtopology_id for one in topology.subtopologies}
    if len(ids) != len(topology.subtopologies) or "" in ids:
        raise InvalidTopology("each subtopology needs an id of its own")
    for one in topology.subtopologies:
        if not one.inputs:
            raise InvalidTopology(f"subtopology {one.subtopology_id!r} reads no topic")
        for topic in one.changelogs:
            if topic.partitions:
                raise InvalidTopology(
                    f"the changelog {topic.name!r} must not declare its number of partitions"
                )
        if any(topic.partitions < 0 for topic in one.repartition_sources):
            raise InvalidTopology(f"subtopology {one.subtopology_id!r} declares less than 0 partitions")


def fit_topics(topology: Topology, count: PartitionCount) -> TopologyTopics:
    """What the topology needs, given the topics that exist. Raises InvalidTopology if it has no solution."""
    sources = {name for one in topology.subtopologies for name in one.source_topics}
    absent = sorted(name for name in sources if count(name) is None)
    if absent:
        return _unfit(StatusCode.MISSING_SOURCE_TOPICS, f"source topics are missing: {_listed(absent)}")
    try:
        decided = _repartitioned(topology, count)
        for one in topology.subtopologies:
            for topics in one.copartition_groups:
                decided.update(_copartitioned(topology, frozenset(topics), decided, count))
        workloads: dict[str, Workload] = {}
        for one in topology.subtopologies:
            tasks = max(_known(name, decided, count) for name in one.inputs)
            workloads[one.subtopology_id] = Workload(tasks, bool(one.changelogs))
            decided.update((topic.name, tasks) for topic in one.changelogs)
        _check_existing(decided, count)
    except _Unfit as unfit:
        return TopologyTopics({}, {}, (), unfit.status)
    if sum(work.tasks for work in workloads.values()) > TASKS_MAX:
        raise InvalidTopology(f"the topology has more than {TASKS_MAX} tasks")
    internal = {topic.name: topic for one in topology.subtopologies for topic in one.internal_topics}
    missing = tuple(
        InternalTopic(name, decided[name], topic.configs, topic.replication_factor)
        for name, topic in sorted(internal.items())
        if count(name) is None
    )
    if not missing:
        return TopologyTopics(workloads, decided)
    names = _listed([topic.name for topic in missing])
    problem = GroupStatus(StatusCode.MISSING_INTERNAL_TOPICS, f"internal topics are missing: {names}")
    return TopologyTopics(workloads, decided, missing, problem)


def _unfit(code: StatusCode, detail: str) -> TopologyTopics:
    return TopologyTopics({}, {}, (), GroupStatus(code, detail))


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"


def _repartitioned(topology: Topology, count: PartitionCount) -> dict[str, int]:
    """The partitions of the repartition topics, from the sources onwards. Raises InvalidTopology."""
    sources = [topic for one in topology.subtopologies for topic in one.repartition_sources]
    decided = {topic.name: topic.partitions for topic in sources if topic.partitions}
    open_sinks = {name for one in topology.subtopologies for name in one.repartition_sinks} - decided.keys()
    while open_sinks:
        found = {
            name: most
            for one in topology.subtopologies
            if (most := _most_known(one, decided, count)) is not None
            for name in open_sinks.intersection(one.repartition_sinks)
        }
        if not found:
            raise InvalidTopology(f"the partitions of {_listed(sorted(open_sinks))} follow from a loop")
        decided.update(found)
        open_sinks -= found.keys()
    unwritten = sorted(topic.name for topic in sources if topic.name not in decided)
    if unwritten:
        raise InvalidTopology(f"no subtopology writes to the repartition topics {_listed(unwritten)}")
    return decided


def _most_known(one: Subtopology, decided: Mapping[str, int], count: PartitionCount) -> int | None:
    """The most partitions among the inputs whose number is known."""
    known = [number for name in one.inputs if (number := decided.get(name, None) or count(name)) is not None]
    return max(known, default=None)


def _copartitioned(
    topology: Topology, topics: frozenset[str], decided: Mapping[str, int], count: PartitionCount
) -> dict[str, int]:
    """The partitions of the repartition topics of a copartition group."""
    declared = {
        topic.name: topic.partitions for one in topology.subtopologies for topic in one.repartition_sources
    }
    repartition = {name: decided[name] for name in topics if name in declared}
    external = {name: _known(name, decided, count) for name in topics if name not in declared}
    fixed = {name: declared[name] for name in repartition if declared[name]}
    binding = external or fixed
    if len(set(binding.values()) | (set(fixed.values()) if external else set())) > 1:
        shown = ", ".join(f"{name}: {number}" for name, number in sorted({**external, **fixed}.items()))
        raise _Unfit(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS, f"topics need equal numbers of partitions: {shown}"
        )
    if not topics:
        return {}
    number = max((binding or repartition).values())
    return dict.fromkeys(repartition, number)


def _known(name: str, decided: Mapping[str, int], count: PartitionCount) -> int:
    number = decided.get(name) or count(name)
    if number is None:
        raise InvalidTopology(f"the number of partitions of {name!r} does not follow from the topology")
    return number


def _check_existing(decided: Mapping[str, int], count: PartitionCount) -> None:
    for name, number in sorted(decided.items()):
        existing = count(name)
        if existing is not None and existing != number:
            raise _Unfit(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"the topic {name!r} has {existing} partitions, and the topology needs {number}",
            )
