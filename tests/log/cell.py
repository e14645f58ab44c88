"""Several brokers over one bucket, all in this process."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.errors import BrokerFenced
from mainstem.log.log import Log, LogOptions
from mainstem.log.objects.checkpointer import store_state
from mainstem.ports.commitlog.shared.bucket.log import BucketCommitLog
from tests.support.clock import ManualClock
from tests.support.machine import DIRECTORY, CountingRandom
from tests.support.memory_store import MemoryObjectStore


class Cell:
    """One bucket and the brokers on it."""

    def __init__(self, store: MemoryObjectStore, **port_options: Any) -> None:
        self.store = store
        self.clock = ManualClock()
        self.random = CountingRandom()
        self.brokers: list[Broker] = []
        self.ports: dict[Broker, BucketCommitLog] = {}
        self._port_options = port_options

    async def port(self) -> BucketCommitLog:
        return await BucketCommitLog.open(
            self.store, clock=self.clock, random=self.random, **self._port_options
        )

    async def add(self, options: LogOptions, **more: Any) -> Broker:
        port = await self.port()
        log = await Log.open(port, self.clock, options, save_at=self.save_at, **more)
        broker = Broker(log, BrokerOptions(DIRECTORY), self.clock, self.random)
        self.brokers.append(broker)
        self.ports[broker] = port
        return broker

    async def save_at(self, position: int) -> None:
        """Make a checkpoint, as the checkpoint process would."""
        port = await self.port()
        await store_state(port, position)
        await port.close()

    async def meet(self) -> None:
        """Wait until every broker has applied every commit."""
        for broker in self.brokers:
            await broker.log.barrier()

    async def leave(self, broker: Broker) -> None:
        self.brokers.remove(broker)
        await broker.close()

    async def close(self) -> None:
        for broker in list(self.brokers):
            with suppress(BrokerFenced):  # expired or replaced
                await self.leave(broker)
