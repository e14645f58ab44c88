"""Sharing: one broker's membership in a log that other brokers write to: its number and its epochs."""

from __future__ import annotations

import asyncio
from typing import cast

from mainstem import events
from mainstem.errors import BrokerFenced, BrokerNumberTaken, MainstemError, StorageError, Unavailable
from mainstem.ledger.brokers import AdmitBroker, Boot, Booted
from mainstem.ledger.ledger import Ledger
from mainstem.log.write.committer import Committer
from mainstem.log.write.shared_writes import UPLOADS_IN_FLIGHT_MAX
from mainstem.ports.clock import Clock
from mainstem.ports.commitlog.port import SharedCommitLog
from mainstem.ports.host import machine_of

_log = events.named("log")


class Sharing:
    """`asked`: the broker's number; None: the log assigns one. `boot_id` distinguishes this process from others with
    the same number; it starts with that of the machine. `on_host`: the log is in files of this machine."""

    def __init__(
        self,
        port: SharedCommitLog,
        committer: Committer,
        ledger: Ledger,
        clock: Clock,
        *,
        asked: int | None,
        boot_id: str,
        node: str,
        on_host: bool = False,
    ) -> None:
        self._port = port
        self._on_host = on_host
        self.broker = ledger.brokers.unused() if asked is None else asked
        self.failure: MainstemError | None = None  # why this process cannot continue
        self.failed = asyncio.Event()  # set with it
        self._numbered = asked is not None
        self._boot_id = boot_id
        self._node = node
        self._committer = committer
        self._ledger = ledger
        self._clock = clock
        committer.take_number(self.broker)
        uploads = 1 if on_host else UPLOADS_IN_FLIGHT_MAX
        self.following = committer.share(port, self._commit_failed, uploads)

    async def boot(self) -> Booted:
        """A new epoch. Offsets do not jump, because what was written to a shared log is durable; but see `_jumps`."""
        trusted = self.clock_trusted
        self.trust_clock(False)  # not validated yet, or not since this process was suspended
        try:
            return await self._boot()
        finally:
            self.trust_clock(trusted)

    async def _boot(self) -> Booted:
        while not self._numbered:
            self.broker = self._ledger.brokers.unused()
            self._committer.take_number(self.broker)
            try:
                admit = AdmitBroker(self.broker, self._boot_id, self._node)
                booted = cast(Booted, await self._committer.propose_alone(admit))
            except BrokerNumberTaken:
                continue  # another process was quicker
            self._numbered = True
            return booted
        boot = Boot(self.broker, self._boot_id, jump=self._jumps, node=self._node)
        return cast(Booted, await self._committer.propose_alone(boot))

    @property
    def _jumps(self) -> bool:
        """Whether the files may lack what a single broker wrote: the machine stopped before a sync, or one failed.

        Of several brokers that boot after that, the first one's jump leaves nothing for the others to do."""
        if not self._on_host:
            return False
        here = machine_of(self._boot_id)
        return self._port.suspect or any(
            not one.halted and (not here or machine_of(one.boot_id) != here) for one in self._ledger.brokers
        )

    async def rejoin(self) -> None:
        """Take a new epoch, after this broker expired or lost the log's tail."""
        self._committer.hold(Unavailable("this broker is rejoining the others: try again"))
        await self.following.rejoin()
        self._committer.take_epoch((await self.boot()).broker_epoch)

    @property
    def expired(self) -> bool:
        """Whether this broker must rejoin before it writes. Fails permanently if another process replaced it."""
        mine = self._ledger.brokers.get(self.broker)
        if mine is not None and mine.boot_id != self._boot_id:
            self._fail(
                BrokerFenced(f"another process runs as broker {self.broker}: give each its own number")
            )
            return False
        return self._committer.stale or not self._ledger.brokers.live(self.broker, self._committer.epoch)

    @property
    def clock_trusted(self) -> bool:
        """Whether this broker's clock advances ledger time for all brokers."""
        return self._committer.clock_trusted

    def trust_clock(self, trusted: bool) -> None:
        self._committer.clock_trusted = trusted

    def idle_s(self) -> float:
        """Seconds since a commit of this broker was last applied."""
        return self._clock.monotonic() - self._committer.committed_at

    async def follow(self) -> None:
        """Apply other brokers' commits, until cancelled or the log fails."""
        try:
            await self.following.run()
        except asyncio.CancelledError:
            raise
        except MainstemError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, this process no longer knows the state
            _log.exception("commits of other brokers not applied")
            self._fail(StorageError(f"others' commits could not be applied: {error!r}"))

    async def barrier(self) -> None:
        """Apply and publish everything that any broker had committed before this call."""
        await self.following.barrier()
        await self._committer.shown()

    async def reached(self, position: int, timeout_s: float) -> bool:
        """Wait until the position of an earlier response is applied and published; False on a timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.following.reached(position)
                await self._committer.shown()
        except TimeoutError:
            return False
        return True

    def _commit_failed(self, error: Exception) -> None:
        if isinstance(error, MainstemError):
            self._fail(error)
        else:
            self._fail(StorageError(f"the commit path failed: {error!r}"))

    def _fail(self, error: MainstemError) -> None:
        if self.failure is None:
            _log.error("log failed; broker stopping", error=str(error))
            self.failure = error
            self._committer.refuse(error)
            self.failed.set()
