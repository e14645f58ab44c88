"""A machine with a simulated disk: opens brokers, loses power and boots again."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random
from typing import Literal

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.log.log import Log, LogOptions
from mainstem.log.objects.checkpoints import InlineCheckpointer
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.ports.commitlog.local.log import LocalCommitLog
from mainstem.ports.objectstore.local import LocalObjectStore
from tests.support.clock import ManualClock
from tests.support.commitlogs import GatedCommitLog
from tests.support.files import Policy, SimFiles

DIRECTORY = Path("/data/mainstem")


class CountingRandom:
    """Ids that differ and are the same in every run."""

    def __init__(self) -> None:
        self._count = 0

    def token(self, size: int) -> bytes:
        self._count += 1
        return self._count.to_bytes(size, "big")


class Machine:
    """Small segments and a checkpoint at every object by default, so that little work crosses many edges."""

    def __init__(
        self,
        *,
        segment_bytes: int = 4096,
        checkpoint_every_bytes: int = 0,
        tail_cache_bytes: int = 4096,
        prepare_ahead: bool = False,
        repack: RepackOptions | None = None,
    ) -> None:
        self.files = SimFiles()
        self.clock = ManualClock()
        self.random = CountingRandom()
        self.boots = 1
        self.port: GatedCommitLog | None = None
        self.broker: Broker | None = None
        self._segment_bytes = segment_bytes
        self.checkpoint_every_bytes = checkpoint_every_bytes
        self._tail_cache_bytes = tail_cache_bytes
        self._prepare_ahead = prepare_ahead
        self.repack = repack or RepackOptions(on=False)

    @staticmethod
    def of_any_kind(chance: Random) -> Machine:
        """With files, checkpoints and memory that are small or not."""
        return Machine(
            segment_bytes=chance.choice((2048, 1 << 20)),
            checkpoint_every_bytes=chance.choice((0, 10_000)),
            tail_cache_bytes=chance.choice((0, 4096)),
        )

    @property
    def commit_log(self) -> GatedCommitLog:
        """The port of the broker that is open."""
        assert self.port is not None
        return self.port

    def sealed_numbers(self) -> list[int]:
        return [held.number for held in self.commit_log.objects() if held.sealed]

    async def open_port(self) -> LocalCommitLog:
        return await LocalCommitLog.open(
            DIRECTORY,
            files=self.files,
            segment_bytes=self._segment_bytes,
            prepare_ahead=self._prepare_ahead,
        )

    async def open(self) -> Broker:
        """Start a broker on what the disk holds."""
        port = await self.open_port()
        self.port = GatedCommitLog(port)
        options = LogOptions(
            boot_id=f"boot-{self.boots}",
            checkpoint_every_bytes=self.checkpoint_every_bytes,
            tail_cache_bytes=self._tail_cache_bytes,
            repack=self.repack,
        )
        try:
            objects = LocalObjectStore(DIRECTORY / "objects", files=self.files)
            log = await Log.open(self.port, self.clock, options, InlineCheckpointer(self.port), objects)
        except BaseException:
            with contextlib.suppress(Exception):
                await port.close()
            raise
        self.broker = Broker(log, BrokerOptions(DIRECTORY, lake_topics="all"), self.clock, self.random)
        return self.broker

    async def restart(self) -> Broker:
        """Stop cleanly and start again."""
        await self.close()
        return await self.open()

    async def kill(self) -> None:
        """The process ends where it stands; what it wrote is in the kernel's memory."""
        await self._down("kept", 0)

    async def drop_pages(self) -> None:
        """The process ends after the kernel gave up pages it could not write; the machine goes on."""
        await self._down("lost", 0)

    async def lose_power(self, policy: Policy = "lost", seed: int = 0) -> None:
        """The kernel's memory is gone as well: what was not synced is lost, kept or torn."""
        await self._down(policy, seed)
        self.boots += 1

    async def crash(self, policy: Policy, seed: int) -> None:
        """Kill only the process if its writes must stay; otherwise cut the power."""
        if policy == "kept":
            await self.kill()
        else:
            await self.lose_power(policy, seed)

    async def crash_somehow(self, chance: Random) -> None:
        how: Literal["kill"] | Policy = chance.choice(("kill", "lost", "kept", "torn"))
        if how == "kill":
            await self.kill()
        else:
            await self.lose_power(how, chance.randrange(1 << 30))

    async def close(self) -> None:
        if self.broker is not None:
            broker, self.broker = self.broker, None
            await broker.close()

    async def _down(self, policy: Policy, seed: int) -> None:
        after = self.files.reboot(policy, seed)
        if self.broker is not None:
            broker, self.broker = self.broker, None
            if self.port is not None:
                self.port.append_gate.set()
                self.port.sync_gate.set()
            with contextlib.suppress(Exception):  # its disk is gone: it can only fail, and end its tasks
                await broker.close()
        self.files = after
