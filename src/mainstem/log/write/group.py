"""A commit group: the commands and slices that become one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from mainstem import limits
from mainstem.ledger.entry import (
    RECORD,
    SLICE,
    SLICE_JOINS,
    SLICE_KEYED,
    SLICE_RESUMES,
    SLICE_TRACKED,
    SLICE_TRANSACTIONAL,
    AppendRun,
    Entry,
    canonical_command,
    encode_command,
)
from mainstem.ledger.section import Command
from mainstem.log.write.append import AppendRequest, Waiter
from mainstem.records.checksums import joined
from mainstem.records.header import Slice, slice_crc

GROUP_COMMIT_BYTES_MAX = 8 * limits.MIB  # payload of one commit
GROUP_COMMIT_COMMANDS_MAX = 16_384  # commands and slices in one commit


class PendingAppends:
    """Consecutive appends, packed row by row on arrival."""

    __slots__ = ("records", "rows", "slices", "waiters")

    def __init__(self) -> None:
        self.rows = bytearray()
        self.records = bytearray()
        self.slices: list[Slice] = []
        self.waiters: list[Waiter] = []

    def part(self) -> AppendRun:
        return AppendRun(np.frombuffer(bytes(self.rows), SLICE), np.frombuffer(bytes(self.records), RECORD))


class PendingCommand:
    """One command that is not an append, encoded before it joins others, so that an invalid one fails alone.

    The broker applies the command as decoded from its own bytes, as every replay does."""

    __slots__ = ("body", "command", "waiter")

    def __init__(self, command: Command, waiter: asyncio.Future[Any]) -> None:
        self.body = encode_command(command)
        self.command = canonical_command(self.body)
        self.waiter = waiter


class CommitGroup:
    """Fills while the group before it is written."""

    __slots__ = (
        "began",
        "by_reference",
        "commands",
        "entry_bytes",
        "parts",
        "payload_bytes",
        "record_bytes",
        "singles",
        "written",
    )

    def __init__(self, *, by_reference: bool = False) -> None:
        self.by_reference = by_reference  # its payload is stored outside the commit, whatever its size
        self.parts: list[PendingAppends | PendingCommand] = []
        self.payload_bytes = 0
        self.entry_bytes = 0  # approximate size of the entry
        self.record_bytes = 0  # of the RECORD rows, which go into the entry
        self.commands = 0  # slices included
        self.singles = 0  # commands other than slices
        self.began = 0.0  # when the write started, in monotonic time
        self.written: list[asyncio.Future[None]] = []  # set when the write is over, failed or not

    def add_slice(
        self, row: bytes, records: bytes, slice: Slice, waiter: Waiter, *, apart: bool = False
    ) -> None:
        """`row` is a packed SLICE row, `records` packed RECORD rows. `apart`: not in one run with those before."""
        if self.parts and type(self.parts[-1]) is PendingAppends and not apart:
            run = self.parts[-1]
        else:
            run = PendingAppends()
            self.parts.append(run)
        run.rows += row
        self.entry_bytes += len(row)
        if records:
            run.records += records
            self.record_bytes += len(records)
            self.entry_bytes += len(records)
        run.slices.append(slice)
        run.waiters.append(waiter)
        self.payload_bytes += len(slice)
        self.commands += 1

    def add_command(self, command: Command, waiter: asyncio.Future[Any]) -> None:
        pending = PendingCommand(command, waiter)
        self.parts.append(pending)
        self.entry_bytes += len(pending.body)
        self.commands += 1
        self.singles += 1

    def takes(self, length: int) -> bool:
        """Whether a slice of this size fits. An empty group takes a slice of any size.

        A payload within the bound is one object of a store; a larger one would need two puts per commit."""
        return not self.payload_bytes or self.payload_bytes + length <= GROUP_COMMIT_BYTES_MAX

    @property
    def full(self) -> bool:
        return (
            self.payload_bytes >= GROUP_COMMIT_BYTES_MAX
            or self.commands >= GROUP_COMMIT_COMMANDS_MAX
            or self.record_bytes >= GROUP_COMMIT_BYTES_MAX
        )

    def bodies(self) -> list[bytes | None]:
        """The commands as they are stored, and None for each run of appends."""
        return [None if isinstance(part, PendingAppends) else part.body for part in self.parts]

    def slices(self) -> list[Slice]:
        """The payload, in the order of the rows."""
        found: list[Slice] = []
        for part in self.parts:
            if type(part) is PendingAppends:
                found += part.slices
        return found

    def payload_crc(self, entry: Entry) -> int | None:
        """The CRC of consecutive slices, combined from theirs; None where computing it again is cheaper."""
        slices = self.commands - self.singles
        if not slices or self.payload_bytes < slices * limits.CRC_JOINED_BYTES_MIN:
            return None
        runs = [part.slices for part in entry.parts if isinstance(part, AppendRun)]
        crc = 0
        for run in runs:
            for its, length in zip(run["crc"].tolist(), run["length"].tolist(), strict=True):
                crc = joined(crc, its, length)
        return crc

    def fail(self, error: BaseException) -> None:
        """Fail all callers: nothing of this group was published."""
        for part in self.parts:
            waiters: Sequence[Waiter] = part.waiters if isinstance(part, PendingAppends) else [part.waiter]
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error)


def row_fields(request: AppendRequest) -> tuple[int, ...]:
    """The SLICE row of an append, to be packed."""
    slice, facts = request.batches, request.facts
    flags = SLICE_TRACKED if request.records else 0
    if facts.transactional:
        flags |= SLICE_TRANSACTIONAL | (SLICE_JOINS if facts.joins else 0)
    if facts.keyed:
        flags |= SLICE_KEYED
    if facts.resumes:
        flags |= SLICE_RESUMES
    return (
        request.stream,
        facts.count,
        len(slice),
        slice_crc(slice, facts.batches),
        facts.max_timestamp,
        facts.producer,
        facts.base_sequence,
        facts.producer_epoch,
        flags,
        request.size,
        facts.batches,
    )
