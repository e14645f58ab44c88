"""The cluster as one broker sees it: who else serves the same log, who does what, and whether it still belongs.

On a log of its own a broker is alone, and does everything. On a shared one it joins once its doors are open, commits
something at least every second, and expires others it heard nothing of. Silence is measured by one's own monotonic
clock, and the ledger undoes a wrong guess: an expiry names the last commit its proposer saw.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from mainstem import events, limits
from mainstem.broker.cluster import placement
from mainstem.errors import BrokerFenced, MainstemError, Stale
from mainstem.ledger.brokers import ExpireBroker, Heartbeat
from mainstem.ledger.members import BrokerMember, JoinBroker
from mainstem.log.log import Log
from mainstem.log.write.sharing import Sharing
from mainstem.ports.clock import Clock

_log = events.named("cluster")

_Heard = tuple[int, int]  # epoch and last commit id


class Cluster:
    """Who is there, by what the ledger says. `join` makes this broker a part of it."""

    def __init__(self, log: Log, clock: Clock, *, zone: str = "", node: str = "local") -> None:
        self._log = log
        self._sharing = log.sharing
        self._clock = clock
        self._zone = zone
        self._node = node
        self._addresses: tuple[tuple[str, str], ...] = ()
        self._heard: dict[int, tuple[_Heard, float]] = {}  # of other members, and since when it is the same
        self._looked = clock.monotonic()  # when others were last looked at
        # Of whom too little was heard by then to send clients there.
        self._suspects: frozenset[int] = frozenset()
        self._beating: asyncio.Task[None] | None = None
        self._chosen: dict[str, int] = {}  # answers of `chosen`, as long as nobody comes or goes
        self._chosen_at = -1
        self._changed: list[Callable[[], None]] = []
        self._told_state = -1
        self._beat_since: float | None = None  # when the heartbeat under way was proposed
        self._beat_failure: str | None = None  # why the last one was not committed
        self.clock_off_ms: int | None = None  # against the store's clock; None: not known

    @property
    def shared(self) -> bool:
        """Whether other brokers may write to the same log."""
        return self._sharing is not None

    @property
    def broker(self) -> int:
        """The number of this broker."""
        return self._log.broker

    @property
    def state(self) -> int:
        """Equal as long as nobody comes or goes."""
        return self._log.ledger.members.digest

    @property
    def leaders_state(self) -> int:
        """Equal as long as every stream has the same leader."""
        return self.state ^ hash(self._suspects)

    def members(self) -> Sequence[BrokerMember]:
        """Everybody who serves, by number. A broker that has not joined counts itself only if nobody else is there."""
        there = list(self._log.ledger.members)
        return there or [self.here]

    @property
    def here(self) -> BrokerMember:
        return BrokerMember(self.broker, self._log.epoch, self._addresses, self._zone, self._node)

    @property
    def refusal(self) -> str | None:
        """Why this broker writes nothing now, if so: for good, or because the log does not take its heartbeat."""
        if self._log.refusal is not None:
            return str(self._log.refusal)
        waited_s = 0.0 if self._beat_since is None else self._clock.monotonic() - self._beat_since
        if self._beat_failure is None and waited_s > limits.MEMBER_SILENT_S:
            return f"the log has not taken its heartbeat for {waited_s:.0f} s: see whether the store answers"
        return self._beat_failure

    # Who does what

    def runs_here(self, work: str) -> bool:
        """Whether a piece of work that one broker is enough for falls to this one."""
        return self.broker_for(work) == self.broker

    def runs_here_on_trusted_clock(self, work: str) -> bool:
        """The same for work that depends on what time it is."""
        return (self._sharing is None or self._sharing.clock_trusted) and self.runs_here(work)

    def take_clock(self, off_ms: int) -> None:
        """This broker's clock is that far off the store's."""
        trusted = abs(off_ms) <= limits.CLOCK_SKEW_MS_MAX
        self.clock_off_ms = off_ms
        if self._sharing is not None and trusted != self._sharing.clock_trusted:
            _log.warning("clock", off_ms=off_ms, trusted=trusted, message="keep the brokers' clocks in step")
            self._sharing.trust_clock(trusted)

    def broker_for(self, work: str) -> int:
        """The broker that a piece of work falls to."""
        return self._choice(f"work {work}")

    def coordinator(self, kind: str, name: str) -> int:
        """The broker that looks after a group or a transaction."""
        return self._choice(f"{kind} {name}")

    def leader(self, stream: int, zone: str = "") -> int:
        """The broker that clients had better go to for a stream. Any other serves them as well.

        So it need not be certain that one is gone to send them elsewhere, and they write on two seconds sooner: most
        of them ask once a second."""
        if not zone and not self._suspects:
            return self._choice(f"stream {stream}")
        live = [member for member in self.members() if member.broker not in self._suspects]
        return placement.preferred(f"stream {stream}", live, zone) or self.broker

    def _choice(self, thing: str) -> int:
        if not self.shared:
            return self.broker
        if self._chosen_at != self.state or len(self._chosen) > _CHOICES_KEPT:
            self._chosen.clear()
            self._chosen_at = self.state
        found = self._chosen.get(thing)
        if found is None:
            brokers = [member.broker for member in self.members()]
            found = self._chosen[thing] = placement.chosen(thing, brokers) or self.broker
        return found

    async def reached(self, position: int, timeout_s: float) -> bool:
        """Wait until this broker has applied the log up to a position, and shows it to readers; False if that takes
        too long."""
        return self._sharing is None or await self._sharing.reached(position, timeout_s)

    # Belonging

    async def join(self, addresses: Mapping[str, str]) -> None:
        """Tell the others where clients reach this broker, and stay until `leave`."""
        self._addresses = tuple(sorted(addresses.items()))
        if self._sharing is not None:
            await self._join()
            beating = self._beat(self._sharing)
            self._beating = asyncio.get_running_loop().create_task(beating, name="mainstem-heartbeat")

    async def leave(self) -> None:
        """Stop beating. That this broker is gone is told by the log when it closes."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
            self._beating = None

    def on_change(self, tell: Callable[[], None]) -> None:
        """Call it, soon after somebody came or went."""
        self._changed.append(tell)

    def _tell(self) -> None:
        if self._told_state != self.state:
            self._told_state = self.state
            for tell in self._changed:
                tell()

    def silent_s(self, broker: int) -> float:
        """For how long nothing was heard of a member."""
        found = self._heard.get(broker)
        return 0.0 if found is None or broker == self.broker else self._clock.monotonic() - found[1]

    async def _join(self) -> None:
        await self._log.propose(
            JoinBroker(self.broker, self._log.epoch, self._addresses, self._zone, self._node)
        )

    async def _beat(self, sharing: Sharing) -> None:
        while sharing.failure is None:
            try:
                if sharing.expired:
                    await self._rejoin(sharing)
                elif sharing.idle_s() >= self._beat_every_s():
                    self._beat_since = self._clock.monotonic()
                    await self._log.propose(Heartbeat(self.broker, self._log.epoch))
                await self._expire_silent()
                self._heartbeat_loop()
                self._tell()
            except (BrokerFenced, Stale):
                await asyncio.sleep(limits.MEMBER_REJOIN_S)
            except MainstemError as error:
                self._heartbeat_failed(error)
            await asyncio.sleep(limits.MEMBER_HEARTBEAT_S / 4)

    def _beat_every_s(self) -> float:
        """Nobody misses a broker that is alone. Whoever joins is seen long before it would."""
        alone = len(self._log.ledger.members) <= 1
        return limits.MEMBER_ALONE_HEARTBEAT_S if alone else limits.MEMBER_HEARTBEAT_S

    def _heartbeat_loop(self) -> None:
        self._beat_since = None
        if self._beat_failure is not None:
            self._beat_failure = None
            _log.info("heartbeats are committed again")

    def _heartbeat_failed(self, error: MainstemError) -> None:
        """Told once: until it is over there is nothing new to tell."""
        self._beat_since = None
        if self._beat_failure is None:
            _log.warning("no heartbeat", error=str(error))
        self._beat_failure = str(error)

    async def _rejoin(self, sharing: Sharing) -> None:
        """Others took this broker for dead: what it proposed since then was refused."""
        _log.warning("rejoining", message="this broker was expired, or lost sight of the log")
        await sharing.rejoin()
        await self._join()
        _log.info("rejoined", epoch=self._log.epoch)

    async def _expire_silent(self) -> None:
        for broker, epoch, last in self._silent():
            gone = await self._log.propose(ExpireBroker(broker, epoch, last))
            if gone.gone:
                _log.warning("broker expired", broker=broker, epoch=epoch)

    def _silent(self) -> list[tuple[int, int, int]]:
        now = self._clock.monotonic()
        ledger = self._log.ledger
        if now - self._looked > 2 * limits.MEMBER_HEARTBEAT_S:
            # This process, or the store, stood still. The others get as much time as if it had begun just now.
            self._heard.clear()
        self._looked = now
        members = {member.broker: member for member in ledger.members if member.broker != self.broker}
        for gone in self._heard.keys() - members.keys():
            del self._heard[gone]
        found = []
        for broker, member in members.items():
            heard = (member.epoch, ledger.brokers.last_commit_id(broker))
            known = self._heard.get(broker)
            if known is None or known[0] != heard:
                self._heard[broker] = (heard, now)
            elif now - known[1] >= limits.MEMBER_SILENT_S:
                found.append((broker, *heard))
        self._suspect(now)
        return found

    def _suspect(self, now: float) -> None:
        """Whoever is silent while this broker's own commits get through."""
        speaks = self._sharing is not None and self._sharing.idle_s() < limits.MEMBER_SUSPECT_S
        self._suspects = frozenset(
            broker
            for broker, (_, since) in self._heard.items()
            if speaks and now - since >= limits.MEMBER_SUSPECT_S
        )


_CHOICES_KEPT = 100_000
