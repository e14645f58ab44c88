"""An overview of the server: its data by tier, its brokers, and its topics by size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from mainstem.api.server import BrokerSummary, ServerSummary, TierSizes
from mainstem.api.topics import TopicSummaries, TopicSummary
from mainstem.ledger.topics import Topic

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker

SortBy = Literal["name", "records", "bytes", "partitions", "written"]


class Overview:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._log = broker.log

    def glance(self) -> ServerSummary:
        broker, ledger, cluster = self._broker, self._log.ledger, self._broker.cluster
        streams = ledger.streams
        alive = streams.alive[: streams.count]
        refusal = self._log.refusal
        return ServerSummary(
            broker.options.node,
            cluster.broker,
            [
                BrokerSummary(
                    member.broker,
                    member.epoch,
                    member.node,
                    member.zone,
                    dict(member.addresses),
                    member.broker == cluster.broker,
                    cluster.silent_s(member.broker),
                )
                for member in cluster.members()
            ],
            len(ledger.topics),
            int(alive.sum()),
            int(streams.records[: streams.count].sum()) - self._log.missing.count(),
            streams.total_bytes(),
            self.appended(),
            ledger.position,
            sum(1 for _ in ledger.transactions.open()),
            len(ledger.routers),
            self.tiers(),
            None if refusal is None else str(refusal),
            broker.clock.now_ms(),
        )

    def appended(self) -> int:
        """Records ever appended to the topics that exist, without the copies that routers made."""
        ledger = self._log.ledger
        streams, routers = ledger.streams, ledger.routers
        ends = int(streams.end[: streams.count][streams.alive[: streams.count]].sum())
        copies = sum(router.copies for router in map(routers.get, routers.names()) if router is not None)
        return max(0, ends - copies)

    def tiers(self) -> TierSizes:
        generations = self._log.ledger.generations
        files = file_bytes = records = 0
        for stream in generations.streams():
            for part in generations.parts(stream):
                files, file_bytes, records = (
                    files + len(part.files),
                    file_bytes + part.bytes,
                    records + part.records,
                )
        held = self._log.stored_objects()
        return TierSizes(
            held.memory_bytes,
            self._broker.options.tail_cache_bytes,
            len(held.objects),
            sum(one.size_bytes for one in held.objects),
            files,
            file_bytes,
            records,
            len(generations.garbage()),
            sum(one.cold for one in held.objects),
            sum(one.size_bytes for one in held.objects if one.cold),
            sum(len(made.files) for made in self._log.ledger.repacked.rounds),
            sum(made.bytes for made in self._log.ledger.repacked.rounds),
        )

    # Topics

    def topics(
        self,
        allowed: Callable[[str], bool],
        *,
        search: str = "",
        kind: str = "",
        by: SortBy = "name",
        descending: bool = False,
        skip: int = 0,
        limit: int = 100,
        recent: Callable[[bytes], list[float]] = lambda _: [],
    ) -> TopicSummaries:
        """A page of the topics whose names contain `search`, in the requested order, then by name."""
        wanted = search.lower()
        found = [
            topic
            for topic in self._log.ledger.topics
            if wanted in topic.name.lower()
            and (not kind or topic.config.type == kind)
            and allowed(topic.name)
        ]
        if by == "name":
            ordered: Sequence[int] = range(len(found))[::-1] if descending else range(len(found))
        else:
            ranks = self._ranks(found, by)
            ordered = np.argsort(-ranks if descending else ranks, kind="stable").tolist()
        page = [found[at] for at in ordered[skip : skip + limit]]
        return TopicSummaries([self._row(topic, recent(topic.topic_id)) for topic in page], len(found))

    def _ranks(self, topics: Sequence[Topic], by: SortBy) -> npt.NDArray[np.int64]:
        counts = np.array([len(topic.streams) for topic in topics], np.int64)
        if by == "partitions" or not topics:
            return counts
        streams = self._log.ledger.streams
        numbers = np.fromiter(
            chain.from_iterable(topic.streams for topic in topics), np.int64, int(counts.sum())
        )
        firsts = np.cumsum(counts) - counts
        if by == "written":
            return np.asarray(np.maximum.reduceat(streams.max_timestamp[numbers], firsts))
        column = streams.records if by == "records" else streams.bytes
        return np.asarray(np.add.reduceat(column[numbers], firsts))

    def _row(self, topic: Topic, recent: list[float]) -> TopicSummary:
        streams = self._log.ledger.streams
        config = topic.config
        if config.durability == "ephemeral" or config.ttl_ms:
            # Their counts do not depend on the ledger alone: ephemeral records and expiry change them.
            states = [self._broker.states.state(topic, number) for number in range(len(topic.streams))]
            records, size = sum(state.count for state in states), sum(state.bytes for state in states)
            end = sum(state.head_seq for state in states)
            latest = max(state.last_write_ms or -1 for state in states)
        else:
            numbers = list(topic.streams)
            records, size = int(streams.records[numbers].sum()), int(streams.bytes[numbers].sum())
            records -= sum(map(self._log.missing.count, numbers))
            end, latest = int(streams.end[numbers].sum()), int(streams.max_timestamp[numbers].max())
        return TopicSummary(
            topic.name,
            config.type,
            config.durability,
            len(topic.streams),
            records,
            size,
            end,
            latest if latest >= 0 else None,
            config.table,
            recent,
        )
