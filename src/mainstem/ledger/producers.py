"""Idempotent producers: what each last wrote to each stream, so that a retry gets the offset of the first attempt.

One slot per (producer, stream) pair, in arrays: a million of them stay small and are hashed at array speed.
The last batches of a slot are a ring of PRODUCER_BATCHES_KEPT entries.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.errors import invariant
from mainstem.ledger.appends import AppendCode
from mainstem.ledger.digest import MASK, Words, hash_columns, hash_fields
from mainstem.ledger.section import Command, Moment, Section, applies, reacts
from mainstem.ledger.topics import TopicDeletedEvent

PRODUCER_BATCHES_KEPT = 5  # a duplicate of one of the last batches gets the original offset

PRODUCERS_MAX = 1_000_000
PRODUCER_OWNERS_MAX = 200_000  # the newest ids that belong to a principal
OWNER_CHARS_MAX = 1_024


class AllocateProducer(Command, frozen=True, tag=20):
    """A new idempotent producer id; the ledger counts them."""

    owner: str = ""  # the principal that writes with it; empty: any principal may


class ExpireProducers(Command, frozen=True, tag=21):
    """Forget producers that have been idle since before `before_ms` (a ledger time)."""

    before_ms: int


@dataclass(frozen=True, slots=True)
class ProducerAllocated:
    producer: int


@dataclass(frozen=True, slots=True)
class ProducersExpired:
    forgotten: int


SEQUENCES = 1 << 31  # Kafka's sequence numbers wrap to 0 past 2^31 - 1

_KEPT = PRODUCER_BATCHES_KEPT
_FIRST_SLOTS = 64

_OK = int(AppendCode.OK)
_DUPLICATE = int(AppendCode.DUPLICATE)
_OUT_OF_ORDER = int(AppendCode.OUT_OF_ORDER)
_FENCED = int(AppendCode.PRODUCER_FENCED)
_UNKNOWN = int(AppendCode.PRODUCER_UNKNOWN)


class ProducersState(msgspec.Struct, frozen=True, array_like=True):
    """Every slot, longest idle first, in a checkpoint; arrays are little-endian."""

    next_producer: int
    producer: bytes  # i8 per slot
    stream: bytes  # u4
    epoch: bytes  # i2
    heard: bytes  # i8
    filled: bytes  # u1
    first: bytes  # i4, PRODUCER_BATCHES_KEPT per slot, oldest batch first, 0 where not filled
    last: bytes  # i4, likewise
    base: bytes  # i8, likewise
    owned: bytes  # i8 per id that belongs to a principal
    owners: bytes  # u4, likewise: an index in `owner_names`
    owner_names: list[str]
    owners_from: int  # the owners of ids below it are forgotten


class Producers(Section[ProducersState]):
    """The slots, in the order of their last write. All times are in steps of PRODUCER_TIME_STEP_MS."""

    def __init__(self) -> None:
        self.next_producer = 0
        self._slots: OrderedDict[int, int] = OrderedDict()  # producer << 32 | stream → slot
        self._free: list[int] = []
        self._used = 0  # slots ever used
        self._sum = 0  # of the hashes of slots that are not dirty
        self._owners: OrderedDict[int, str] = OrderedDict()  # principals by producer id, oldest first
        self._owners_from = 0  # the owners of ids below it are forgotten
        self._owners_sum = 0  # of their hashes
        self._allocate(_FIRST_SLOTS)

    def _allocate(self, slots: int) -> None:
        self.producer: npt.NDArray[np.int64] = np.zeros(slots, np.int64)
        self.stream: npt.NDArray[np.uint32] = np.zeros(slots, np.uint32)
        self.epoch: npt.NDArray[np.int16] = np.zeros(slots, np.int16)
        self.heard: npt.NDArray[np.int64] = np.zeros(slots, np.int64)
        self.filled: npt.NDArray[np.uint8] = np.zeros(slots, np.uint8)
        self.next: npt.NDArray[np.uint8] = np.zeros(slots, np.uint8)  # the ring index of the next batch
        self.dirty: npt.NDArray[np.uint8] = np.zeros(slots, np.uint8)  # changed since it was hashed
        self.hash: Words = np.zeros(slots, np.uint64)
        self.first: npt.NDArray[np.int32] = np.zeros(slots * _KEPT, np.int32)
        self.last: npt.NDArray[np.int32] = np.zeros(slots * _KEPT, np.int32)
        self.base: npt.NDArray[np.int64] = np.zeros(slots * _KEPT, np.int64)
        self._bind()

    _PER_SLOT = ("producer", "stream", "epoch", "heard", "filled", "next", "dirty", "hash")
    _PER_BATCH = ("first", "last", "base")

    def _bind(self) -> None:
        # Access to one item costs a third through a memoryview.
        self._epoch = memoryview(self.epoch)  # type: ignore[arg-type]
        self._heard = memoryview(self.heard)  # type: ignore[arg-type]
        self._filled = memoryview(self.filled)  # type: ignore[arg-type]
        self._next = memoryview(self.next)  # type: ignore[arg-type]
        self._dirty = memoryview(self.dirty)  # type: ignore[arg-type]
        self._first = memoryview(self.first)  # type: ignore[arg-type]
        self._last = memoryview(self.last)  # type: ignore[arg-type]
        self._base = memoryview(self.base)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self._slots)

    def allocate(self, owner: str = "") -> int:
        """A new producer id. Skips ids that a client wrote with although they were never allocated: the client
        would find its sequence numbers taken."""
        while self.producer[: self._used].max(initial=-1) >= self.next_producer and np.any(
            self.producer[: self._used] == self.next_producer
        ):
            self.next_producer += 1
        producer = self.next_producer
        self.next_producer += 1
        if owner:
            self._owners[producer] = owner
            self._owners_sum += hash_fields("owner", producer, owner)
            if len(self._owners) > PRODUCER_OWNERS_MAX:
                forgotten = self._owners.popitem(last=False)
                self._owners_sum -= hash_fields("owner", *forgotten)
                self._owners_from = forgotten[0] + 1
        return producer

    def may_write(self, producer: int, principal: str) -> bool:
        """Whether a producer id was allocated to the principal, or to no particular one."""
        if producer < self._owners_from:
            return False  # the client gets a new id
        return self._owners.get(producer, principal) == principal

    def judge(self, producer: int, stream: int, epoch: int, first: int, count: int) -> tuple[int, int]:
        """Whether a batch may be appended: (code, base), the base only of a duplicate, else -1."""
        if first < 0 or count < 1:
            return _OUT_OF_ORDER, -1
        slot = self._slots.get(producer << 32 | stream)
        if slot is None:
            return (_OK if first == 0 else _UNKNOWN), -1
        known = self._epoch[slot]
        if epoch != known:
            if epoch < known:
                return _FENCED, -1
            return (_OK if first == 0 else _OUT_OF_ORDER), -1
        rows = slot * _KEPT
        if first == (self._last[rows + (self._next[slot] - 1) % _KEPT] + 1) % SEQUENCES:
            return _OK, -1
        last = (first + count - 1) % SEQUENCES
        for row in range(rows, rows + self._filled[slot]):
            if self._first[row] == first and self._last[row] == last:
                return _DUPLICATE, self._base[row]
        return _OUT_OF_ORDER, -1

    def next_sequence(self, producer: int, stream: int) -> int:
        """The sequence number that continues what the producer wrote last."""
        slot = self._slots.get(producer << 32 | stream)
        if slot is None:
            return 0
        return (self._last[slot * _KEPT + (self._next[slot] - 1) % _KEPT] + 1) % SEQUENCES

    def may_have_forgotten(self, producer: int, stream: int) -> bool:
        """Whether this ledger assigned the producer's id and remembers no write of it to the stream."""
        return producer < self.next_producer and producer << 32 | stream not in self._slots

    def record(
        self, producer: int, stream: int, epoch: int, first: int, count: int, base: int, time_ms: int
    ) -> None:
        """Remember a batch that was appended after `judge` said OK."""
        key = producer << 32 | stream
        slot = self._slots.get(key)
        if slot is None:
            slot = self._take_slot(key, producer, stream, epoch)
        else:
            self._slots.move_to_end(key)
            if epoch != self._epoch[slot]:
                self._epoch[slot] = epoch
                self._filled[slot] = self._next[slot] = 0
        place = self._next[slot]
        row = slot * _KEPT + place
        self._first[row] = first
        self._last[row] = (first + count - 1) % SEQUENCES
        self._base[row] = base
        self._next[slot] = (place + 1) % _KEPT
        if self._filled[slot] < _KEPT:
            self._filled[slot] += 1
        self._heard[slot] = time_ms // limits.PRODUCER_TIME_STEP_MS
        self._dirty[slot] = 1

    def _take_slot(self, key: int, producer: int, stream: int, epoch: int) -> int:
        if len(self._slots) >= PRODUCERS_MAX:
            self._forget(next(iter(self._slots)))
        if self._free:
            slot = self._free.pop()
        else:
            slot = self._used
            if slot == len(self.producer):
                self._grow()
            self._used += 1
        self.producer[slot] = producer
        self.stream[slot] = stream
        self._epoch[slot] = epoch
        self._filled[slot] = self._next[slot] = 0
        self._slots[key] = slot
        return slot

    def _grow(self) -> None:
        for name in self._PER_SLOT + self._PER_BATCH:
            old = getattr(self, name)
            setattr(self, name, np.concatenate((old, np.zeros_like(old))))
        self._bind()

    def _forget(self, key: int) -> None:
        slot = self._slots.pop(key)
        self._sum = (self._sum - int(self.hash[slot])) & MASK
        self.hash[slot] = 0
        self._dirty[slot] = 0
        self.producer[slot] = -1
        self.stream[slot] = limits.STREAMS_MAX  # not a stream's number, so that searches skip free slots
        self._free.append(slot)

    @applies(AllocateProducer)
    def allocate_one(self, command: AllocateProducer, now: Moment) -> ProducerAllocated:
        return ProducerAllocated(self.allocate(command.owner[:OWNER_CHARS_MAX]))

    @applies(ExpireProducers)
    def expire(self, command: ExpireProducers, now: Moment) -> ProducersExpired:
        forgotten = 0
        while self.any_idle_since(command.before_ms):
            self._forget(next(iter(self._slots)))
            forgotten += 1
        return ProducersExpired(forgotten)

    def any_idle_since(self, before_ms: int) -> bool:
        """Whether `expire` would forget any."""
        # Ledger time never runs back, so the first slot is the longest idle.
        slot = next(iter(self._slots.values()), None)
        return slot is not None and (self._heard[slot] + 1) * limits.PRODUCER_TIME_STEP_MS <= before_ms

    def forget(self, producer: int, streams: Iterable[int]) -> None:
        """The producer will not write to these streams again."""
        for stream in streams:
            if producer << 32 | stream in self._slots:
                self._forget(producer << 32 | stream)

    @reacts(TopicDeletedEvent)
    def on_topic_deleted(self, event: TopicDeletedEvent, now: Moment) -> None:
        streams = np.array(event.topic.streams, np.uint32)
        found = np.flatnonzero(np.isin(self.stream[: self._used], streams))
        for slot in found.tolist():
            self._forget(int(self.producer[slot]) << 32 | int(self.stream[slot]))

    def of_stream(self, stream: int) -> list[tuple[int, int, int, int, int]]:
        """The producers of a stream, by id: (producer, epoch, last sequence, time in ms and base of the last write)."""
        slots = np.flatnonzero(self.stream[: self._used] == stream).tolist()
        return sorted(
            (
                int(self.producer[slot]),
                self._epoch[slot],
                self._last[slot * _KEPT + (self._next[slot] - 1) % _KEPT],
                self._heard[slot] * limits.PRODUCER_TIME_STEP_MS,
                self._base[slot * _KEPT + (self._next[slot] - 1) % _KEPT],
            )
            for slot in slots
        )

    @property
    def digest(self) -> int:
        """The hash of the next id, and of each slot; only slots that changed since the last call are hashed again."""
        slots = np.flatnonzero(self.dirty[: self._used])
        if len(slots):
            old = int(self.hash[slots].sum())
            self.hash[slots] = new = self._hash(slots)
            self.dirty[slots] = 0
            self._sum = (self._sum - old + int(new.sum())) & MASK
        counted = hash_fields("next producer", self.next_producer, self._owners_from)
        return (self._sum + self._owners_sum + counted) & MASK

    def _hash(self, slots: npt.NDArray[np.intp]) -> Words:
        total = np.zeros(len(slots), np.uint64)
        for place in range(_KEPT):
            rows = slots * _KEPT + place
            words = hash_columns(
                self.producer[slots],
                self.stream[slots],
                self.epoch[slots],
                self.first[rows],
                self.last[rows],
                self.base[rows],
            )
            total += np.where(place < self.filled[slots], words, np.uint64(0))
        return total

    def encode(self) -> ProducersState:
        slots = np.fromiter(self._slots.values(), np.intp, len(self._slots))
        filled = self.filled[slots]
        oldest = (self.next[slots].astype(np.intp) - filled) % _KEPT
        places = np.arange(_KEPT)
        rows = slots[:, None] * _KEPT + (oldest[:, None] + places) % _KEPT
        kept = places < filled[:, None]
        return ProducersState(
            self.next_producer,
            self.producer[slots].tobytes(),
            self.stream[slots].tobytes(),
            self.epoch[slots].tobytes(),
            self.heard[slots].tobytes(),
            filled.tobytes(),
            np.where(kept, self.first[rows], 0).astype(np.int32).tobytes(),
            np.where(kept, self.last[rows], 0).astype(np.int32).tobytes(),
            np.where(kept, self.base[rows], 0).astype(np.int64).tobytes(),
            *self._encoded_owners(),
        )

    def _encoded_owners(self) -> tuple[bytes, bytes, list[str], int]:
        count = len(self._owners)
        names = {name: index for index, name in enumerate(dict.fromkeys(self._owners.values()))}
        owned = np.fromiter(self._owners, np.int64, count)
        owners = np.fromiter(map(names.__getitem__, self._owners.values()), np.uint32, count)
        return owned.tobytes(), owners.tobytes(), list(names), self._owners_from

    def load(self, state: ProducersState) -> None:
        self.next_producer = state.next_producer
        slots = len(state.filled)
        self._allocate(max(slots, _FIRST_SLOTS))
        for name in ("producer", "stream", "epoch", "heard", "filled"):
            column = getattr(self, name)
            column[:slots] = np.frombuffer(getattr(state, name), column.dtype, slots)
        for name in self._PER_BATCH:
            column = getattr(self, name)
            column[: slots * _KEPT] = np.frombuffer(getattr(state, name), column.dtype, slots * _KEPT)
        self.next[:slots] = self.filled[:slots] % _KEPT
        self.dirty[:slots] = 1
        self._used = slots
        owned, owners = np.frombuffer(state.owned, np.int64), np.frombuffer(state.owners, np.uint32)
        for producer, index in zip(owned.tolist(), owners.tolist(), strict=True):
            self._owners[producer] = name = state.owner_names[index]
            self._owners_sum += hash_fields("owner", producer, name)
        self._owners_from = state.owners_from
        keys = zip(self.producer[:slots].tolist(), self.stream[:slots].tolist(), strict=True)
        self._slots.update((producer << 32 | stream, slot) for slot, (producer, stream) in enumerate(keys))
        invariant(len(self._slots) == slots, "a producer has one slot a stream")
