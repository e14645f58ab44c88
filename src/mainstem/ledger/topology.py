"""The topology of a Kafka Streams application, as its members declare it (KIP-1071): values only, without a section."""

from __future__ import annotations

import msgspec


class InternalTopic(msgspec.Struct, frozen=True, array_like=True):
    """A topic that belongs to the application, and that the broker creates for it."""

    name: str
    partitions: int  # 0 = follows from the topics that are read
    configs: tuple[tuple[str, str], ...]
    replication_factor: int = 0  # as the client gave it; the store replicates the data


class Subtopology(msgspec.Struct, frozen=True, array_like=True):
    """Processors that run together. Each partition of its sources is one task."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    changelogs: tuple[InternalTopic, ...]  # of its state; none = it is stateless
    repartition_sinks: tuple[str, ...]
    repartition_sources: tuple[InternalTopic, ...]
    copartition_groups: tuple[tuple[str, ...], ...]  # topics that need equal numbers of partitions

    @property
    def inputs(self) -> tuple[str, ...]:
        """The topics that its tasks read."""
        return (*self.source_topics, *(topic.name for topic in self.repartition_sources))

    @property
    def internal_topics(self) -> tuple[InternalTopic, ...]:
        return (*self.repartition_sources, *self.changelogs)


class Topology(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    subtopologies: tuple[Subtopology, ...]

    @property
    def inputs(self) -> frozenset[str]:
        return frozenset(name for one in self.subtopologies for name in one.inputs)

    @property
    def topics(self) -> frozenset[str]:
        """Every topic that it names."""
        internal = (topic.name for one in self.subtopologies for topic in one.internal_topics)
        sinks = (name for one in self.subtopologies for name in one.repartition_sinks)
        return self.inputs.union(internal, sinks)
