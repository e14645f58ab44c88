"""Queues: streams whose records are jobs, leased to workers and deleted once they are done.

Every command first lets leases expire and delays come due by ledger time, which arrives inside the entry. So the
holder of a job is decided at apply, and is the same on every broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from mainstem import limits
from mainstem.errors import (
    InvalidInput,
    LimitReached,
    MainstemError,
    NotAQueue,
    Rejected,
    StreamNotFound,
    TopicFull,
)
from mainstem.ledger.appends import AppendCode, AppendOutcome
from mainstem.ledger.brokers import BrokerEpochEnded
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.digest import MASK
from mainstem.ledger.intervals import DELETED, is_loss
from mainstem.ledger.leases import Leases, LeasesState, deal_round_robin, ranges_of
from mainstem.ledger.section import Command, Moment, Section, admits_append, applies, reacts
from mainstem.ledger.streams import Streams
from mainstem.ledger.topics import Topic, TopicDeletedEvent, Topics

CLAIM_BYTES_MAX = 64 * limits.MIB  # of one claim, by the average size of the queue's jobs


class Claim(Command, frozen=True, tag=70):
    """Lease the next jobs of a queue: (node, maximum jobs, lease ms, token), one job each in turn."""

    stream: int
    claimers: tuple[tuple[str, int, int, int], ...]  # a token is 64 random bits
    broker: int = 0  # that grants the leases: its restart ends those that are not durable


class Ack(Command, frozen=True, tag=71):
    """A node finished these jobs: delete them. Jobs that it does not hold stay."""

    stream: int
    node: str
    offsets: tuple[int, ...]
    tokens: tuple[int, ...] = ()  # one per offset; empty: the node's name is enough


class Nack(Command, frozen=True, tag=72):
    """A node returns these jobs, for another attempt after a delay."""

    stream: int
    node: str
    offsets: tuple[int, ...]
    tokens: tuple[int, ...] = ()
    delay_ms: int = 0


class Extend(Command, frozen=True, tag=73):
    """A node keeps these jobs for `lease_ms` from now on."""

    stream: int
    node: str
    offsets: tuple[int, ...]
    lease_ms: int
    tokens: tuple[int, ...] = ()


class ExpireLeases(Command, frozen=True, tag=74):
    """Apply the lease expiries and due delays of a queue."""

    stream: int


class Bury(Command, frozen=True, tag=75):
    """Delete jobs that were leased too often.

    `noted`: only those with a recorded copy that is not lost since. The others must be copied again."""

    stream: int
    offsets: tuple[int, ...]
    noted: bool = True


class NoteCopies(Command, frozen=True, tag=76):
    """The slice right before this command holds copies of these jobs, in this order, in another stream.

    Separate from `Bury`, which follows when both are synced: a crash may leave the entry whole and damage the slice."""

    stream: int
    offsets: tuple[int, ...]
    destination: int
    # Reject the whole append run before this command if one of the jobs has a copy or is deleted: another broker may
    # have copied them first.
    once: bool = False


@dataclass(frozen=True, slots=True)
class JobsGranted:
    """The jobs of one claimer."""

    token: int
    deadline_ms: int
    offsets: list[int]
    deliveries: list[int]  # how often each was leased, this time included


@dataclass(frozen=True, slots=True)
class JobsClaimed:
    grants: tuple[JobsGranted, ...]  # one per claimer
    exhausted: tuple[tuple[int, int], ...]  # (offset, deliveries) of all exhausted jobs
    ready: int
    in_flight: int
    relaxed: bool  # may be acknowledged before it is synced
    reach: int  # one past the highest leased offset, which must be readable before the response


@dataclass(frozen=True, slots=True)
class JobsChanged:
    """The result of Ack, Nack and Extend: the offsets that the node held, and those that it did not."""

    offsets: list[int]
    skipped: list[int]
    ready: int
    in_flight: int
    relaxed: bool
    deadline_ms: int = 0  # of the extended jobs


@dataclass(frozen=True, slots=True)
class LeasesExpired:
    ready: int
    in_flight: int
    relaxed: bool


@dataclass(frozen=True, slots=True)
class CopiesNoted:
    jobs: int


@dataclass(frozen=True, slots=True)
class JobsBuried:
    jobs: int  # that still existed
    ready: int


_TOKENS = 1 << 64


class QueueOwners(Protocol):
    def of_stream(self, stream: int) -> Topic | None:
        """The topic of a stream, if it still exists."""
        ...


class Queues(Section[list[LeasesState]]):
    """The leases of every queue that had a claim, by stream."""

    requires = (Streams, Topics)

    def __init__(self, streams: Streams, topics: QueueOwners) -> None:
        self._streams = streams
        self._topics = topics
        self._leases: dict[int, Leases] = {}

    # Reads

    def leases(self, stream: int) -> Leases | None:
        return self._leases.get(stream)

    def ready(self, stream: int) -> int:
        """Jobs that a claim would get, as of the last command."""
        leases = self._leases.get(stream)
        records = int(self._streams.records[stream])
        return records if leases is None else records - leases.leased - leases.set_aside

    def in_flight(self, stream: int) -> int:
        leases = self._leases.get(stream)
        return leases.leased if leases else 0

    def dead_lettered(self, stream: int) -> int:
        leases = self._leases.get(stream)
        return leases.buried if leases else 0

    # Commands

    @applies(Claim)
    def claim(self, command: Claim, now: Moment) -> JobsClaimed | MainstemError:
        now_ms = now.time_ms
        config = self._config(command.stream)
        if isinstance(config, MainstemError):
            return config
        for _, limit, lease_ms, token in command.claimers:
            if not 1 <= limit <= limits.CLAIM_JOBS_MAX or not 0 <= token < _TOKENS:
                return InvalidInput(f"a claim is for 1 to {limits.CLAIM_JOBS_MAX} jobs, not {limit}")
            if not limits.LEASE_MS_MIN <= lease_ms <= limits.LEASE_MS_MAX:
                return InvalidInput(f"invalid lease of {lease_ms} ms")
        leases = self._opened(command.stream, now_ms)
        most = self._affordable(command.stream)
        wanted = [min(limit, most) for _, limit, _, _ in command.claimers]
        deliveries_max = config.max_deliveries if config.dead_letter else 0
        offsets, deliveries = leases.take(
            sum(wanted), deliveries_max, lambda at: self._live(command.stream, at)
        )
        hands = [list(range(len(offsets)))] if len(wanted) == 1 else deal_round_robin(len(offsets), wanted)
        grants = []
        for (node, _, lease_ms, token), hand in zip(command.claimers, hands, strict=True):
            given = [offsets[at] for at in hand]
            leases.lease(token, node, command.broker, now_ms + lease_ms, given)
            grants.append(JobsGranted(token, now_ms + lease_ms, given, [deliveries[at] for at in hand]))
        return JobsClaimed(
            tuple(grants),
            tuple(leases.exhausted()) if leases.set_aside else (),
            self.ready(command.stream),
            leases.leased,
            relaxed=not config.leases_durable,
            reach=max(offsets, default=-1) + 1,
        )

    @applies(Ack)
    def ack(self, command: Ack, now: Moment) -> JobsChanged | MainstemError:
        """The jobs are finished: delete the records."""
        config = self._config(command.stream)
        if isinstance(config, MainstemError):
            return config
        leases = self._opened(command.stream, now.time_ms)
        held, others = leases.held_by(command.node, command.offsets, command.tokens)
        if held:
            leases.finish(held)
            self._streams.punch(command.stream, tuple(ranges_of(held)), DELETED, 0)
        return self._changed(command.stream, held, others, relaxed=config.relaxed)

    @applies(Nack)
    def nack(self, command: Nack, now: Moment) -> JobsChanged | MainstemError:
        config = self._config(command.stream)
        if isinstance(config, MainstemError):
            return config
        if not 0 <= command.delay_ms <= limits.NACK_DELAY_MS_MAX:
            return InvalidInput(f"invalid delay of {command.delay_ms} ms")
        leases = self._opened(command.stream, now.time_ms)
        held, others = leases.held_by(command.node, command.offsets, command.tokens)
        leases.give_back(held, now.time_ms + command.delay_ms if command.delay_ms else None)
        return self._changed(command.stream, held, others, relaxed=not config.leases_durable)

    @applies(Extend)
    def extend(self, command: Extend, now: Moment) -> JobsChanged | MainstemError:
        config = self._config(command.stream)
        if isinstance(config, MainstemError):
            return config
        if not limits.LEASE_MS_MIN <= command.lease_ms <= limits.LEASE_MS_MAX:
            return InvalidInput(f"invalid lease of {command.lease_ms} ms")
        leases = self._opened(command.stream, now.time_ms)
        held, others = leases.held_by(command.node, command.offsets, command.tokens)
        deadline_ms = now.time_ms + command.lease_ms
        leases.extend(held, deadline_ms)
        return self._changed(
            command.stream, held, others, relaxed=not config.leases_durable, deadline_ms=deadline_ms
        )

    @applies(ExpireLeases)
    def expire(self, command: ExpireLeases, now: Moment) -> LeasesExpired | MainstemError:
        """Only what every command does first. Repeating it has no effect."""
        config = self._config(command.stream)
        if isinstance(config, MainstemError):
            return config
        leases = self._opened(command.stream, now.time_ms)
        return LeasesExpired(self.ready(command.stream), leases.leased, relaxed=not config.leases_durable)

    def delay_refusal(self, stream: int, jobs: int, limit: int) -> MainstemError | None:
        """Why this many new jobs cannot be delayed, or None."""
        config = self._config(stream)
        if isinstance(config, MainstemError):
            return config
        leases = self._leases.get(stream)
        if leases is not None and leases.set_aside + jobs > limit:
            return LimitReached(f"a queue holds up to {limit} delayed jobs: write fewer")
        return None

    def delay(self, stream: int, offsets: list[int], now_ms: int, delay_ms: int) -> None:
        """Hand out jobs that were appended just now after a delay."""
        self._opened(stream, now_ms).delay(offsets, now_ms + delay_ms)

    @admits_append(NoteCopies)
    def admits(self, command: NoteCopies) -> bool:
        """Whether the copies that the command notes may be appended."""
        if not command.once:
            return True
        leases = self._leases.get(command.stream)
        return leases is not None and all(
            leases.is_exhausted(offset) and leases.copy_of(offset) is None for offset in command.offsets
        )

    @applies(NoteCopies)
    def note_copies(self, command: NoteCopies, now: Moment) -> CopiesNoted | MainstemError:
        """Remember the offsets of the copies in the last slice of the append run right before the command.

        If that run was refused, the jobs stay as they are, and a later claim copies them."""
        before = now.before
        config = self._config(command.stream)
        if isinstance(config, MainstemError):
            return config
        if not isinstance(before, AppendOutcome) or not len(before.code):
            return InvalidInput("copies of jobs are noted in the entry that appends them")
        if before.code[-1] == AppendCode.FULL:
            return TopicFull(f"dead letter topic {config.dead_letter!r} is full and rejects records")
        if before.code[-1] == AppendCode.OVERTAKEN:
            return Rejected("another broker copied some of these jobs first")
        if before.code[-1] != AppendCode.OK:
            return Rejected(f"dead letter topic {config.dead_letter!r} did not accept the jobs")
        leases = self._leases.get(command.stream)
        if leases is None:
            return CopiesNoted(0)
        base = int(before.base[-1])
        copies = {offset: (command.destination, base + at) for at, offset in enumerate(command.offsets)}
        return CopiesNoted(leases.note_copies(copies))

    @applies(Bury)
    def bury(self, command: Bury, now: Moment) -> JobsBuried | MainstemError:
        config = self._config(command.stream)
        if isinstance(config, MainstemError):
            return config
        leases = self._leases.get(command.stream)
        moved: list[int] = []
        for offset in dict.fromkeys(command.offsets) if leases else ():
            copy = leases.copy_of(offset) if leases else None
            if leases and leases.is_exhausted(offset) and (copy or not command.noted):
                if copy and self._lost(*copy):
                    leases.forget_copy(offset)
                else:
                    moved.append(offset)
        if leases and moved:
            leases.bury(moved)
            self._streams.punch(command.stream, tuple(ranges_of(moved)), DELETED, 0)
        return JobsBuried(len(moved), self.ready(command.stream))

    def _lost(self, stream: int, offset: int) -> bool:
        """Whether a copy was lost. A copy that was deleted, or evicted by a cap, is not lost."""
        return any(
            is_loss(reason) for _, _, reason in self._streams.holes(stream).overlapping(offset, offset + 1)
        )

    @reacts(BrokerEpochEnded)
    def on_broker_epoch_ended(self, event: BrokerEpochEnded, now: Moment) -> None:
        """Leases that the broker granted and that are not durable end. Delivery counts stay."""
        if event.halted:
            return
        for stream, leases in self._leases.items():
            topic = self._topics.of_stream(stream)
            if topic is not None and not topic.config.leases_durable:
                leases.end_leases(event.broker)

    @reacts(TopicDeletedEvent)
    def on_topic_deleted(self, event: TopicDeletedEvent, now: Moment) -> None:
        self.forget_streams(event.topic.streams)

    def forget_streams(self, streams: tuple[int, ...]) -> None:
        for stream in streams:
            self._leases.pop(stream, None)

    def _config(self, stream: int) -> TopicConfig | MainstemError:
        topic = self._topics.of_stream(stream)
        if topic is None:
            return StreamNotFound(stream)
        if topic.config.type != "queue":
            return NotAQueue(topic.name)
        if self._streams.ephemeral(stream):
            return InvalidInput(f"topic {topic.name!r} is ephemeral: its jobs cannot be leased")
        return topic.config

    def _opened(self, stream: int, now_ms: int) -> Leases:
        leases = self._leases.get(stream)
        if leases is None:
            leases = Leases(stream)
            self._adopt(leases)
        leases.settle(now_ms)
        return leases

    def _adopt(self, leases: Leases) -> None:
        self._leases[leases.stream] = leases
        self._streams.watch(leases.stream, leases.forget)

    def _affordable(self, stream: int) -> int:
        """How many jobs of average size fit into one claim's byte limit; at least one."""
        records, size = int(self._streams.records[stream]), int(self._streams.bytes[stream])
        return max(1, CLAIM_BYTES_MAX * records // size) if size else limits.CLAIM_JOBS_MAX

    def _live(self, stream: int, offset: int) -> Iterator[tuple[int, int]]:
        streams = self._streams
        return streams.holes(stream).live(max(offset, streams.start(stream)), streams.stable_end(stream))

    def _changed(
        self, stream: int, held: list[int], others: list[int], *, relaxed: bool, deadline_ms: int = 0
    ) -> JobsChanged:
        return JobsChanged(
            held, others, self.ready(stream), self.in_flight(stream), relaxed=relaxed, deadline_ms=deadline_ms
        )

    # State as a whole

    @property
    def digest(self) -> int:
        return sum(leases.digest for leases in self._leases.values()) & MASK

    def encode(self) -> list[LeasesState]:
        return [leases.encode() for _, leases in sorted(self._leases.items())]

    def load(self, state: list[LeasesState]) -> None:
        for leases in state:
            self._adopt(Leases.decode(leases))
