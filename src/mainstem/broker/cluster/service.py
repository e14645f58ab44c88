"""The cluster as one broker sees it: the members, the placement of work, and whether this broker is still a member.

On a log of its own a broker does everything. On a shared log it joins once its doors are open, commits something at
least every second, and expires brokers that are silent for too long. It measures silence with its own monotonic clock;
the ledger rejects a wrong expiry, because an expiry names the last commit that its proposer saw. A broker whose process
is gone is suspected at once (peer_watch.py).

The brokers agree on who does what by rendezvous hashing, without messages: every pair of a thing and a broker has a
score, and the broker with the highest score does it. When one leaves, only its own things move; when one joins, it
takes an equal share from each of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Protocol

from mainstem import events, limits
from mainstem.broker.cluster.peer_watch import PeerWatch
from mainstem.errors import BrokerFenced, MainstemError, Stale
from mainstem.ledger.brokers import ExpireBroker, Heartbeat
from mainstem.ledger.members import BrokerMember, JoinBroker, LeaveBroker
from mainstem.log.log import Log
from mainstem.log.write.sharing import Sharing
from mainstem.ports.clock import Clock

MEMBER_HEARTBEAT_S = 1.0  # a broker commits at least this often …
MEMBER_ALONE_HEARTBEAT_S = 15.0  # … and a single one this often: each commit to a bucket is a billed request
MEMBER_SUSPECT_S = 2.0  # without a heartbeat for this long, clients are sent to other brokers …
MEMBER_SILENT_S = 3.5  # … and after this the other brokers expire it
MEMBER_GONE_S = 2.0  # … or this long after its process was found to be gone
MEMBER_REJOIN_S = 0.2  # between two attempts of an expired broker to rejoin
HAND_OVER_S = 2.0  # how long a stopping broker tries to notify the others …
HANDED_OVER_S = 0.3  # … and gives them to apply it

_log = events.named("cluster")

_Heard = tuple[int, int]  # epoch and last commit id


class Cluster:
    """The members according to the ledger. `join` makes this broker one of them."""

    def __init__(self, log: Log, clock: Clock, *, zone: str = "", node: str = "local") -> None:
        self._log = log
        self._sharing = log.sharing
        self.shared = log.sharing is not None  # other brokers may write to the same log
        self._clock = clock
        self._zone = zone
        self._node = node
        self._addresses: tuple[tuple[str, str], ...] = ()
        self._heard: dict[int, tuple[_Heard, float]] = {}  # of other members, and since when it is unchanged
        self._looked = clock.monotonic()  # when the others were last checked
        # Members that have been silent for too long to send clients there.
        self._suspects: frozenset[int] = frozenset()
        self._gone: dict[int, float] = {}  # members whose process was found to be gone, and when
        self._peers: PeerWatch | None = None
        self._beating: asyncio.Task[None] | None = None
        self._chosen: dict[str, int] = {}  # results of `chosen`, valid while the membership is unchanged
        self._chosen_at = -1
        self._changed: list[Callable[[], None]] = []
        self._told_state = -1
        self._beat_since: float | None = None  # when the heartbeat in flight was proposed
        self._beat_failure: str | None = None  # why the last one was not committed
        self.clock_off_ms: int | None = None  # against the store's clock; None: unknown

    @property
    def broker(self) -> int:
        """The number of this broker."""
        return self._log.broker

    @property
    def state(self) -> int:
        """A number that changes with the membership."""
        return self._log.ledger.members.digest

    @property
    def leaders_state(self) -> int:
        """A number that changes with the leaders of streams."""
        return self.state ^ hash(self._suspects)

    def members(self) -> Sequence[BrokerMember]:
        """All members, by number. A broker that has not joined counts itself only if it is alone."""
        there = list(self._log.ledger.members) if self.shared else []  # else they shared the log once
        return there or [self.here]

    @property
    def here(self) -> BrokerMember:
        return BrokerMember(self.broker, self._log.epoch, self._addresses, self._zone, self._node)

    @property
    def refusal(self) -> str | None:
        """Why this broker cannot write now, or None: fenced, or its heartbeat is not committed."""
        if self._log.refusal is not None:
            return str(self._log.refusal)
        waited_s = 0.0 if self._beat_since is None else self._clock.monotonic() - self._beat_since
        if self._beat_failure is None and waited_s > MEMBER_SILENT_S:
            return f"its heartbeat has not been committed for {waited_s:.0f} s: check that the store responds"
        return self._beat_failure

    # Placement

    def runs_here(self, work: str) -> bool:
        """Whether this broker does a piece of work that needs only one broker."""
        return self.broker_for(work) == self.broker

    def runs_here_on_trusted_clock(self, work: str) -> bool:
        """The same, for work that depends on the clock."""
        return (self._sharing is None or self._sharing.clock_trusted) and self.runs_here(work)

    def take_clock(self, off_ms: int) -> None:
        """Store the difference between this broker's clock and the store's."""
        trusted = abs(off_ms) <= limits.CLOCK_SKEW_MS_MAX
        self.clock_off_ms = off_ms
        if self._sharing is not None and trusted != self._sharing.clock_trusted:
            _log.warning(
                "clock differs", off_ms=off_ms, trusted=trusted, message="synchronise the brokers' clocks"
            )
            self._sharing.trust_clock(trusted)

    def broker_for(self, work: str) -> int:
        """The broker that does a piece of work."""
        return self._choice(f"work {work}")

    def coordinator(self, kind: str, name: str) -> int:
        """The coordinator of a group, a transaction or a Pulsar topic: a broker that its clients can reach, if there is
        one."""
        return self._choice(f"{kind} {name}", "pulsar" if kind == "pulsar" else "kafka")

    def coordinates(self, kind: str, name: str) -> bool:
        return self.coordinator(kind, name) == self.broker

    def other_coordinator(self, group: str, door: str) -> str | None:
        """Where the other broker that coordinates the group listens; None: this broker does, or no address is known."""
        coordinator = self.coordinator("group", group)
        if coordinator == self.broker:
            return None
        return next((member.address(door) for member in self.members() if member.broker == coordinator), None)

    def leader(self, stream: int, zone: str = "") -> int:
        """The broker that clients should use for a stream. Any other broker serves them too.

        So clients can be sent elsewhere before a silent broker is expired, which shortens an interruption by about two
        seconds: most clients request metadata once a second."""
        if not zone and not self._suspects:
            return self._choice(f"stream {stream}")
        live = [member for member in self.members() if member.broker not in self._suspects]
        return preferred(f"stream {stream}", live, zone) or self.broker

    def _choice(self, thing: str, door: str | None = None) -> int:
        """The broker for something, among those that have a listener of the door, or among all if none has."""
        if not self.shared:
            return self.broker
        if self._chosen_at != self.state or len(self._chosen) > _CHOICES_KEPT:
            self._chosen.clear()
            self._chosen_at = self.state
        found = self._chosen.get(thing)
        if found is None:
            members = self.members()
            open_to = [member for member in members if door is None or member.listens(door)]
            brokers = [member.broker for member in open_to or members]
            found = self._chosen[thing] = chosen(thing, brokers) or self.broker
        return found

    async def reached(self, position: int, timeout_s: float) -> bool:
        """Wait until this broker has applied the log up to a position, and shows it to readers; False if that takes
        too long."""
        return self._sharing is None or await self._sharing.reached(position, timeout_s)

    # Membership

    async def join(self, addresses: Mapping[str, str], *, watch_peers: bool = False) -> None:
        """Publish this broker's addresses, and stay a member until `leave`. `watch_peers`: connect to the others, to
        see when their processes end."""
        self._addresses = tuple(sorted(addresses.items()))
        if self._sharing is not None:
            if watch_peers:
                self._peers = PeerWatch(self.peer_gone, self.peer_there)
            await self._join()
            beating = self._beat(self._sharing)
            self._beating = asyncio.get_running_loop().create_task(beating, name="mainstem-heartbeat")

    async def hand_over(self) -> None:
        """Send clients and work to the other members. This broker still serves who asks it, until its doors close."""
        if self._beating is None or len(self._log.ledger.members) <= 1:
            return
        try:
            async with asyncio.timeout(HAND_OVER_S):
                await self._log.propose(LeaveBroker(self.broker, self._log.epoch))
        except (MainstemError, TimeoutError) as error:
            # It stops nevertheless: the others see that its doors are closed.
            _log.warning("hand-over failed", error=str(error) or "the log takes no commits")
        else:
            # A client that is cut off asks another broker where to go: that one must know by then.
            await asyncio.sleep(HANDED_OVER_S)

    async def leave(self) -> None:
        """Stop the heartbeats. Closing the log removes this broker from the members."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
            self._beating = None
        if self._peers is not None:
            await self._peers.close()
            self._peers = None

    def on_change(self, tell: Callable[[], None]) -> None:
        """Register a callback that runs soon after the membership changes."""
        self._changed.append(tell)

    def _tell(self) -> None:
        if self._told_state != self.state:
            self._told_state = self.state
            for tell in self._changed:
                tell()

    def silent_s(self, broker: int) -> float:
        """How long a member has been silent."""
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
                self._watch_peers()
                self._heartbeat_committed()
                self._tell()
            except (BrokerFenced, Stale):
                await asyncio.sleep(MEMBER_REJOIN_S)
            except MainstemError as error:
                self._heartbeat_failed(error)
            await asyncio.sleep(MEMBER_HEARTBEAT_S / 4)

    def _watch_peers(self) -> None:
        if self._peers is not None:
            others = {one.broker: one for one in self._log.ledger.members if one.broker != self.broker}
            found = {number: one.address("kafka") or one.address("http") for number, one in others.items()}
            self._peers.watch({number: address for number, address in found.items() if address})

    def peer_gone(self, broker: int) -> None:
        """Nobody listens at its address. Unless it left, it counts as silent until it commits something."""
        if broker not in self._gone and self._log.ledger.members.get(broker) is not None:
            self._gone[broker] = now = self._clock.monotonic()
            _log.warning("broker unreachable", broker=broker, message="nothing listens at its address")
            self._suspect(now)

    def peer_there(self, broker: int) -> None:
        self._gone.pop(broker, None)

    def _gone_since(self, broker: int, heard_at: float) -> float | None:
        """When the member's process was found to be gone; None if it committed something since. Its last commits may
        arrive a little later. A broker whose address only looks wrong from here commits at every heartbeat."""
        since = self._gone.get(broker)
        return since if since is not None and heard_at <= since + MEMBER_HEARTBEAT_S / 2 else None

    def _beat_every_s(self) -> float:
        """A lone broker sends heartbeats less often: it sees another one join well before that one would expire it."""
        alone = len(self._log.ledger.members) <= 1
        return MEMBER_ALONE_HEARTBEAT_S if alone else MEMBER_HEARTBEAT_S

    def _heartbeat_committed(self) -> None:
        self._beat_since = None
        if self._beat_failure is not None:
            self._beat_failure = None
            _log.info("heartbeat restored")

    def _heartbeat_failed(self, error: MainstemError) -> None:
        """Log the failure once, until heartbeats succeed again."""
        self._beat_since = None
        if self._beat_failure is None:
            _log.warning("heartbeat failed", error=str(error))
        self._beat_failure = str(error)

    async def _rejoin(self, sharing: Sharing) -> None:
        """Other brokers expired this one: its proposals since then were rejected."""
        _log.warning("rejoining", message="this broker was expired, or lost the log")
        await sharing.rejoin()
        await self._join()
        _log.info("rejoined", epoch=self._log.epoch)

    async def _expire_silent(self) -> None:
        for broker, epoch, last in self.silent_members():
            gone = await self._log.propose(ExpireBroker(broker, epoch, last))
            if gone.gone:
                _log.warning("broker expired", broker=broker, epoch=epoch)

    def silent_members(self) -> list[tuple[int, int, int]]:
        """(broker, epoch, last commit id) of members to expire. Also updates which ones clients should avoid."""
        now = self._clock.monotonic()
        ledger = self._log.ledger
        if now - self._looked > 2 * MEMBER_HEARTBEAT_S:
            # This process or the store was suspended: restart the silence timers of the others.
            self._heard.clear()
        self._looked = now
        members = {member.broker: member for member in ledger.members if member.broker != self.broker}
        for gone in self._heard.keys() - members.keys():
            del self._heard[gone]
            self._gone.pop(gone, None)
        found = []
        for broker, member in members.items():
            heard = (member.epoch, ledger.brokers.last_commit_id(broker))
            known = self._heard.get(broker)
            if known is None or known[0] != heard:
                self._heard[broker] = (heard, now)
            elif now - known[1] >= MEMBER_SILENT_S or self._left(broker, known[1], now):
                found.append((broker, *heard))
        self._suspect(now)
        return found

    def _left(self, broker: int, heard_at: float, now: float) -> bool:
        since = self._gone_since(broker, heard_at)
        return since is not None and now - since >= MEMBER_GONE_S

    def _suspect(self, now: float) -> None:
        """Suspect members that are silent or gone while this broker's own commits succeed."""
        speaks = self._sharing is not None and self._sharing.idle_s() < MEMBER_SUSPECT_S
        self._suspects = frozenset(
            broker
            for broker, (_, heard_at) in self._heard.items()
            if speaks
            and (now - heard_at >= MEMBER_SUSPECT_S or self._gone_since(broker, heard_at) is not None)
        )


_CHOICES_KEPT = 100_000


class PlacedBroker(Protocol):
    @property
    def broker(self) -> int: ...

    @property
    def zone(self) -> str: ...


def score(thing: str, broker: int) -> int:
    return int.from_bytes(blake2b(f"{broker} {thing}".encode(), digest_size=8).digest(), "little")


def chosen(thing: str, brokers: Iterable[int]) -> int | None:
    """The broker that does it; None if there is none."""
    return max(brokers, key=lambda broker: (score(thing, broker), broker), default=None)


def preferred(thing: str, live: Sequence[PlacedBroker], zone: str = "") -> int | None:
    """The same, among the brokers of a zone if it has any."""
    near = [one.broker for one in live if one.zone == zone] if zone else []
    return chosen(thing, near or [one.broker for one in live])
