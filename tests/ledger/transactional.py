"""A transactional producer for tests: it counts its own sequences, and speaks either version of transactions."""

from __future__ import annotations

from typing import Any

from mainstem.ledger.appends import AppendCode
from mainstem.ledger.entry import SLICE_JOINS, SLICE_TRANSACTIONAL
from mainstem.ledger.transactions import (
    AddGroupToTransaction,
    AddStreamsToTransaction,
    EndTransaction,
    InitProducer,
    ProducerInitialised,
    TransactionEnded,
    TransactionOffsets,
)

from .writer import Writer

OK, DUPLICATE, FENCED, INVALID = (
    AppendCode.OK,
    AppendCode.DUPLICATE,
    AppendCode.PRODUCER_FENCED,
    AppendCode.INVALID_TRANSACTION,
)
JOINING = SLICE_TRANSACTIONAL | SLICE_JOINS


class Producer:
    def __init__(self, writer: Writer, id: str = "tx", timeout_ms: int = 1_000) -> None:
        self.writer = writer
        self.id = id
        started: ProducerInitialised = writer.do(InitProducer(id, timeout_ms))
        self.producer, self.epoch = started.producer, started.epoch
        self.marked = started.marked
        self.sequences: dict[int, int] = {}

    def add(self, *streams: int) -> Any:
        return self.writer.do(AddStreamsToTransaction(self.id, self.producer, self.epoch, streams))

    def append(self, stream: int, count: int = 1, flags: int = SLICE_TRANSACTIONAL) -> tuple[int, int]:
        sequence = self.sequences.get(stream, 0)
        base, code = self.writer.append(
            stream, count, producer=self.producer, epoch=self.epoch, sequence=sequence, flags=flags
        )
        if code == OK:
            self.sequences[stream] = sequence + count
        return base, code

    def write(self, stream: int, count: int = 1) -> int:
        self.add(stream)
        base, code = self.append(stream, count)
        assert code == OK
        return base

    def end(self, commit: bool, *, bump: bool = False) -> Any:
        """Continues with the identity that a bump returns."""
        ended = self.writer.do(EndTransaction(self.id, self.producer, self.epoch, commit, bump))
        if bump and isinstance(ended, TransactionEnded):
            self.producer, self.epoch = ended.producer, ended.epoch
            self.sequences = {}
        return ended

    def offsets(self, group: str, *offsets: tuple[int, int, str], joins: bool = False) -> Any:
        return self.writer.do(
            TransactionOffsets(self.id, self.producer, self.epoch, group, offsets, joins=joins)
        )

    def join(self, group: str) -> Any:
        return self.writer.do(AddGroupToTransaction(self.id, self.producer, self.epoch, group))

    def copy(self) -> Producer:
        """The same producer, as one who missed what comes next."""
        other = object.__new__(Producer)
        other.__dict__.update(self.__dict__, sequences=dict(self.sequences))
        return other
