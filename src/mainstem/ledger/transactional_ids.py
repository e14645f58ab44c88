"""A transactional id with its present or last transaction, and its form in a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import msgspec

from mainstem.ledger.digest import hash_fields

Identity = tuple[int, int]  # a producer and its epoch
Position = tuple[int, str, int]  # next offset to read, metadata, leader epoch


class TransactionPhase(IntEnum):
    """The state of a transactional id. Open changes to ended in one step."""

    EMPTY = 0  # never had a transaction in this epoch
    OPEN = 1
    COMMITTED = 2
    ABORTED = 3


@dataclass(slots=True)
class Transaction:
    """A transactional id, and its present or last transaction."""

    id: str
    producer: int
    epoch: int
    timeout_ms: int
    last_epoch: int = -1  # the previous epoch, which a producer sends if it missed the response to its bump
    phase: TransactionPhase = TransactionPhase.EMPTY
    started_ms: int = -1  # ledger time
    updated_ms: int = 0
    streams: dict[int, None] = field(default_factory=dict)  # a dict for its fixed order
    offsets: dict[str, dict[int, Position]] = field(default_factory=dict)  # group → stream → position
    ended_as: Identity | None = None  # the identity that the last end replaced: a retry of the end sends it
    owner: str | None = None  # the principal of an id that is used once; None = of any other id
    acks: dict[tuple[int, str], None] = field(default_factory=dict)  # subscriptions: stream and name
    kept: Identity | None = (
        None  # the writer of an open transaction that outlived it: only its end is possible
    )

    @property
    def open(self) -> bool:
        return self.phase is TransactionPhase.OPEN


class TransactionState(msgspec.Struct, frozen=True, array_like=True):
    """One transactional id, in a checkpoint."""

    id: str
    producer: int
    epoch: int
    timeout_ms: int
    last_epoch: int
    phase: int
    started_ms: int
    updated_ms: int
    streams: list[int]
    offsets: list[tuple[str, list[tuple[int, Position]]]]  # group, then by stream
    ended_as: Identity | None
    owner: str | None
    acks: list[tuple[int, str]]
    kept: Identity | None


def restored(stored: TransactionState) -> Transaction:
    return Transaction(
        stored.id,
        stored.producer,
        stored.epoch,
        stored.timeout_ms,
        stored.last_epoch,
        TransactionPhase(stored.phase),
        stored.started_ms,
        stored.updated_ms,
        dict.fromkeys(stored.streams),
        {group: dict(positions) for group, positions in stored.offsets},
        stored.ended_as,
        stored.owner,
        dict.fromkeys(stored.acks),
        stored.kept,
    )


def state_of(one: Transaction) -> TransactionState:
    return TransactionState(
        one.id,
        one.producer,
        one.epoch,
        one.timeout_ms,
        one.last_epoch,
        int(one.phase),
        one.started_ms,
        one.updated_ms,
        list(one.streams),
        positions(one),
        one.ended_as,
        one.owner,
        list(one.acks),
        one.kept,
    )


def positions(one: Transaction) -> list[tuple[str, list[tuple[int, Position]]]]:
    return [(group, list(positions.items())) for group, positions in one.offsets.items()]


def hash_of(one: Transaction) -> int:
    return hash_fields(
        "transaction",
        one.id,
        one.producer,
        one.epoch,
        one.last_epoch,
        one.timeout_ms,
        int(one.phase),
        list(one.streams),
        positions(one),
        one.ended_as,
        one.owner,
        list(one.acks),
        one.kept,
    )
