"""Sinks: tasks append record batches side by side, and one commit makes all of them visible."""

from __future__ import annotations

import msgspec

from mainstem.api.base import Name, Offset

TRANSACTION_TIMEOUT_MS = 300_000  # of a task's transaction, unless the request says otherwise


class SinkTaskBody(msgspec.Struct, frozen=True):
    """One attempt at one task of a batch."""

    query: Name
    run: Name
    batch: Offset
    attempt: Name
    timeout_ms: int = TRANSACTION_TIMEOUT_MS
    lasting: bool = True


class SinkTask(msgspec.Struct, frozen=True):
    """The producer and epoch that a task writes with. `committed`: its batch is committed already."""

    committed: bool
    producer: int
    epoch: int


class SinkAttempt(msgspec.Struct, frozen=True):
    attempt: Name
    producer: int
    epoch: int


class SinkCommitBody(msgspec.Struct, frozen=True):
    """A batch, and the attempts that wrote its records."""

    query: Name
    run: Name
    batch: Offset
    attempts: list[SinkAttempt]
    lasting: bool = True


class SinkCommit(msgspec.Struct, frozen=True):
    committed: bool
    repeated: bool


class SinkRunBody(msgspec.Struct, frozen=True):
    query: Name
    run: Name


class SinkExtended(msgspec.Struct, frozen=True):
    extended: bool


class SinkAborted(msgspec.Struct, frozen=True):
    aborted: bool


class BatchAppended(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    offset: int
    count: int
