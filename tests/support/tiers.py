"""A machine whose log keeps its older objects in an object store, which outlives it."""

from __future__ import annotations

import contextlib

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.log.log import Log, LogOptions
from mainstem.log.objects.checkpoints import InlineCheckpointer
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.log.objects.tiering import HotRetention, check_alone, check_owned, missing_notes
from mainstem.ports.commitlog.local.tiered import TieredCommitLog
from tests.support.machine import DIRECTORY, Machine
from tests.support.memory_store import MemoryObjectStore


class TieredMachine(Machine):
    """Two sealed objects stay on the disk, unless told otherwise."""

    def __init__(self, hot: HotRetention | None = None, repack: RepackOptions | None = None) -> None:
        super().__init__(tail_cache_bytes=0, repack=repack)
        self.bucket = MemoryObjectStore()
        self.hot = hot or HotRetention(retain_bytes=0, retain_segments=2)
        self.log: Log | None = None
        self.tiered: TieredCommitLog | None = None

    async def open(self) -> Broker:
        while True:
            port = await TieredCommitLog.open_tiered(
                DIRECTORY,
                self.bucket,
                files=self.files,
                segment_bytes=self._segment_bytes,
                prepare_ahead=self._prepare_ahead,
            )
            try:
                await check_alone(port, self.bucket)
                log = await self._open_log(port)
            except BaseException:
                with contextlib.suppress(Exception):
                    await port.close()
                raise
            self.broker = Broker(log, BrokerOptions(DIRECTORY), self.clock, self.random)
            await check_owned(port, self.bucket, log.ledger)
            if not await missing_notes(port, log.ledger):
                break
            await self.close()
        await log.find_missing()
        log.tier(self.bucket, self.clock, self.random, self.hot)
        self.log, self.tiered = log, port
        return self.broker

    async def _open_log(self, port: TieredCommitLog) -> Log:
        options = LogOptions(
            boot_id=f"boot-{self.boots}",
            checkpoint_every_bytes=self.checkpoint_every_bytes,
            tail_cache_bytes=self._tail_cache_bytes,
            repack=self.repack,
        )
        return await Log.open(port, self.clock, options, InlineCheckpointer(port), self.bucket)
