"""A whole broker in a simulation: its log, ledger and membership, over the log in etcd or in the bucket."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.errors import BrokerFenced, MainstemError, OffsetOutOfRange, TopicExists, TopicNotFound
from mainstem.ledger.config import TopicConfig
from mainstem.log.log import Log, LogOptions
from mainstem.log.objects.checkpointer import store_state
from mainstem.ports.commitlog.port import SharedCommitLog
from mainstem.ports.commitlog.shared.etcd.commits import ETCD_POSITIONS_TRIED
from mainstem.ports.commitlog.shared.etcd.inline import ETCD_INLINE_BYTES_MAX
from tests.support.histories import ClusterHistory
from tests.support.simulation import Node, World
from tests.support.simulation.world import SeededTokens

TOPIC = "t"
_OBJECT_BYTES = 4_000  # small, so that objects are sealed and deleted all the time


class SimulatedBroker:
    """One run of a broker."""

    def __init__(
        self,
        world: World,
        node: Node,
        number: int,
        kind: str,
        history: ClusterHistory,
        linger_ms: int | None = None,
        kept_ms: int | None = None,
        object_bytes: int = _OBJECT_BYTES,
        positions_tried: int | None = None,
        inline_bytes: int | None = None,
    ) -> None:
        self._world = world
        self._node = node
        self._number = number
        self._kind = kind
        self._history = history
        self._kept_ms = kept_ms  # how long commits covered by a checkpoint are kept; None: the default
        self._linger_ms = world.random.choice((0, 0, 20, 100)) if linger_ms is None else linger_ms
        self._object_bytes = object_bytes
        self._positions_tried = positions_tried or world.random.choice((1, 2, ETCD_POSITIONS_TRIED))
        drawn = world.random.choice((0, 150, ETCD_INLINE_BYTES_MAX))
        self._inline_bytes = drawn if inline_bytes is None else inline_bytes
        self._written = 0
        self.checkpoints = 0
        self.name = ""
        self.broker: Broker | None = None

    async def open(self) -> None:
        """Raises MainstemError."""
        port = await self._port()
        random_tokens = SeededTokens(random.Random(self._world.random.random()))
        clock = self._world.clock(self._node)
        log = await Log.open(
            port,
            clock,
            LogOptions(
                broker=self._number,
                node=self._node.name,
                boot_id=self._node.life.name,
                shared=True,
                linger_ms=self._linger_ms,
                checkpoint_every_bytes=_OBJECT_BYTES,
            ),
            objects=self._world.objects(self._node),
            save_at=self._save_at,
        )
        options = BrokerOptions(Path("/nowhere"), default_config=TopicConfig())
        broker = Broker(log, options, clock, random_tokens)
        await broker.check_clock()
        broker.start_periodic_tasks()
        await broker.cluster.join({"kafka": f"{self._node.name}:9092"})
        self.name = f"{self._node.life.name}/{log.epoch}"
        self.broker = broker

    async def _port(self, *, only_reads: bool = False) -> SharedCommitLog:
        if self._kind == "etcd":
            return await self._world.open_log(
                self._node,
                only_reads=only_reads,
                object_bytes=self._object_bytes,
                retention_ms=self._kept_ms or 0,
                inline_bytes=self._inline_bytes,
                positions_tried=self._positions_tried,
            )
        kept = {} if self._kept_ms is None else {"entries_kept_ms": self._kept_ms}
        return await self._world.open_bucket(self._node, object_bytes=_OBJECT_BYTES, **kept)

    async def _save_at(self, position: int) -> None:
        """In a separate process otherwise."""
        port = await self._port(only_reads=True)
        try:
            await store_state(port, position)
        finally:
            await port.close()
        self.checkpoints += 1

    async def make_topic(self) -> None:
        while self.broker is not None:
            try:
                await self.broker.create_topic(TOPIC)
                return
            except TopicExists:
                return
            except MainstemError:
                await asyncio.sleep(0.5)

    async def write(self, count: int) -> None:
        """One batch. Records the outcome as far as it is known."""
        broker = self.broker
        if broker is None:
            return
        values = [f"{self.name}:{self._written + each}".encode() for each in range(count)]
        self._written += count
        writes = [self._history.write(self.name, TOPIC, value) for value in values]
        try:
            base = (await broker.append_values(TOPIC, values)).base_offset
        except (BrokerFenced, TopicNotFound):
            for write in writes:
                write.refused()
        except MainstemError:
            return  # unknown: it may be there, or appear later
        else:
            for offset, write in enumerate(writes, base):
                write.acked(offset)

    async def read(self) -> None:
        """From the start, as far as this broker shows. Also checks what a barrier promises."""
        broker = self.broker
        if broker is None:
            return
        reader = f"{self.name} {self._world.random.random()}"
        acked = max(
            (write.offset for write in self._history.writes.values() if write.offset >= 0), default=-1
        )
        try:
            await broker.log.barrier()
            records = await self.records()
        except (MainstemError, FileNotFoundError):
            return
        self._history.read(reader, TOPIC, records)
        assert not records or records[-1][0] >= acked, (
            "a barrier passed and something acknowledged is not there"
        )

    async def records(self) -> list[tuple[int, bytes]]:
        broker = self.broker
        assert broker is not None
        found: list[tuple[int, bytes]] = []
        at = 0
        while True:
            try:
                page = await broker.read(TOPIC, at)
            except OffsetOutOfRange:
                return found
            if not page:
                return found
            found += [(record.offset, record.value or b"") for record in page]
            at = page[-1].offset + 1
