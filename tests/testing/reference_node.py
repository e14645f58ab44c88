"""A small node over the shared log: one stream, values in batches, checkpoints. What the simulation is tried with."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec

from mainstem.errors import BehindCheckpoint, BrokerFenced, InvariantBroken, Unavailable
from mainstem.ports.commitlog.port import Checkpoint, Committed, Overtaken, SharedCommitLog
from mainstem.ports.commitlog.shared.etcd.log import EtcdCommitLog
from tests.support.histories import ClusterHistory
from tests.support.simulation import Node, World

STREAM = "s"


async def _look_seldom(pause_s: float) -> None:
    """A follower that finds nothing costs most of a schedule, and what it missed it finds later."""
    await asyncio.sleep(6 * pause_s)


class ReferenceNode:
    """One life of a node: opens the log, loads the newest checkpoint, applies what follows, writes.

    `kind` is where the log is: in etcd, which fences, or in a bucket, which leaves that to the ledger."""

    def __init__(self, world: World, node: Node, history: ClusterHistory, kind: str = "etcd") -> None:
        self.values: list[bytes] = []  # by offset
        self.position = 0
        self.fenced = False
        self._world = world
        self._history = history
        self.name = ""
        self._node = node
        self._bases: dict[int, int] = {}  # the first offset of each commit, by position
        self._kind = kind
        self._log: SharedCommitLog | None = None
        self._number = 0

    @property
    def log(self) -> SharedCommitLog:
        assert self._log is not None
        return self._log

    async def open(self) -> None:
        """Raises Unavailable."""
        self._log = await self._open()
        # A node may be replaced while it lives.
        instance = self._log.epoch if isinstance(self._log, EtcdCommitLog) else self._world.random.random()
        self.name = f"{self._node.life.name}/{instance}"
        while self.position < self.log.end:
            self._reload()
            await self.catch_up()
        self._node.start(self._follow())

    async def _open(self) -> SharedCommitLog:
        if self._kind == "bucket":
            return await self._world.open_bucket(
                self._node, object_bytes=600, checkpoints_kept=2, wait=_look_seldom
            )
        return await self._world.open_log(self._node, object_bytes=600, retention_ms=0, checkpoints_kept=2)

    async def write(self, count: int) -> None:
        """One batch. Its outcome is noted as far as it is known."""
        values = [f"{self.name}:{self._number + each}".encode() for each in range(count)]
        self._number += count
        writes = [self._history.write(self.name, STREAM, value) for value in values]
        while True:
            try:
                place = await self.log.append(msgspec.msgpack.encode(values), [b"".join(values)])
                break
            except Overtaken as overtaken:
                self._apply(overtaken.commits)
            except BrokerFenced:
                # Only this append is known to be refused; one before it may have been left open.
                self.fenced = True
                for write in writes:
                    write.refused()
                return
            except BehindCheckpoint:
                self._reload()
                await self.catch_up()
            except Unavailable:
                return  # unknown: it may be there, or come yet
        while self.position < place.position and place.position not in self._bases:
            await self.catch_up()  # others came first
        if place.position == self.position:
            self._take(place.position, values)
        for write, offset in zip(writes, range(self._bases[place.position], len(self.values)), strict=False):
            write.acked(offset)

    async def catch_up(self) -> None:
        with suppress(Unavailable, BehindCheckpoint):
            async for chunk in self.log.follow(self.position):
                self._apply(chunk)

    async def maintain(self) -> None:
        """Seal what is finished, save a checkpoint, truncate."""
        try:
            await self._maintain()
        except Overtaken as overtaken:
            self._apply(overtaken.commits)
        except (Unavailable, FileNotFoundError):
            return  # the next time goes on from there

    async def _maintain(self) -> None:
        await self.log.roll()
        for one in self.log.objects():
            if not one.sealed and one.end_position <= self.position:
                await self.log.seal(one.number, b"index")
        await self.log.sync()
        state = msgspec.msgpack.encode(self.values)
        await self.log.save_checkpoint(Checkpoint(self.position, state))

    async def _follow(self) -> None:
        while True:
            try:
                async for chunk in self.log.follow(self.position, wait=True):
                    self._apply(chunk)
            except BehindCheckpoint:
                self._reload()
            except Unavailable:
                await asyncio.sleep(0.5)

    def _reload(self) -> None:
        found = self.log.load_checkpoint()
        if found is not None and found.position > self.position:
            values = msgspec.msgpack.decode(found.state, type=list[bytes])
            if values[: len(self.values)] != self.values:
                raise InvariantBroken("a checkpoint holds other values than those applied")
            self._history.read(self.name, STREAM, list(enumerate(values))[len(self.values) :])
            self.values, self.position = values, found.position

    def _apply(self, commits: list[Committed]) -> None:
        for commit in commits:
            position = commit.placement.position
            if position < self.position:
                continue
            if position > self.position:
                raise InvariantBroken(f"the log skipped from {self.position} to {position}")
            self._take(position, msgspec.msgpack.decode(commit.entry, type=list[bytes]))

    def _take(self, position: int, values: list[bytes]) -> None:
        base = self._bases[position] = len(self.values)
        self.values += values
        self.position = position + 1
        self._history.read(self.name, STREAM, list(enumerate(values, base)))
