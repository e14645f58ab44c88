"""The commit log port: one ordered sequence of entries, each with its payload.

A commit is an *entry* (opaque bytes, encoded by the ledger) and a *payload* (slices of record batches, in
the order the entry lists them). The backend decides where the payload lives and numbers the *objects* that
hold it; the entry's *position* is its place in the log: 0, 1, 2, … without holes.

Rules every backend keeps (one contract suite checks them all):
- `append` returns once the commit is written; `sync` once everything written before the call is durable.
- A failed append publishes nothing: no later `follow` shows it, and the next append takes its position.
- `follow` gives exactly the commits that were written, in order, with damage marked and never hidden.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview


class Placement(NamedTuple):
    """Where a commit went."""

    position: int  # place of the entry in the log
    object: int  # number of the object that holds the payload
    start: int  # byte inside that object where the payload starts


class Piece(NamedTuple):
    """Bytes of an object of the log, as one object of the store has them."""

    start: int  # in the object of the log, counted as `Placement.start` is
    length: int
    key: str  # in the store
    at: int  # where they begin there


class Committed(NamedTuple):
    """A commit as read back. A tuple, as is Placement: replay makes millions of both."""

    placement: Placement
    entry: Buffer
    payload_bytes: int
    payload_intact: bool  # False: some slice fails its checksum; the entry says which slices there are


@dataclass(frozen=True, slots=True)
class LogObject:
    """One object of the log, as listed by `objects`."""

    number: int
    first_position: int
    end_position: int  # one past the last commit in it
    size_bytes: int
    sealed: bool  # carries its index and takes no more commits
    cold: bool = False  # of a local log: it is in an object store alone


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state after every commit before `position`."""

    position: int
    state: bytes


class Overtaken(Exception):
    """Other writers' commits come first, and nothing of ours was written: apply them, then append again."""

    def __init__(self, commits: list[Committed]) -> None:
        super().__init__(f"{len(commits)} commits of other writers come first")
        self.commits = commits  # in order, from the position that the append tried to take


class CommitLog(Protocol):
    async def append(self, entry: Buffer, slices: Sequence[Buffer], crc: int | None = None) -> Placement:
        """Write one commit. Calls do not overlap: the caller groups commands meanwhile. `crc`: CRC32C of all slices in
        a row, if the caller knows it.

        Raises NoSpace (nothing written, may be tried again) or ReadOnly (an earlier fsync failed)."""
        ...

    async def append_synced(
        self, entry: Buffer, slices: Sequence[Buffer], crc: int | None = None
    ) -> tuple[Placement, float | None]:
        """As `append`, for a commit that somebody waits for: it is synced in the same go where that spares switching to
        another thread and back. Returns also the seconds that took, None if it is left to `sync`.

        Raises ReadOnly as well if the sync failed; then the commit may be written all the same."""
        ...

    async def sync(self) -> int:
        """Make everything written so far durable. Returns the position below which all is durable.

        May run beside `append`. A failure is final: from then on `append` and `sync` raise ReadOnly."""
        ...

    @property
    def identity(self) -> bytes:
        """What tells this log from every other one: 16 random bytes that never change."""
        ...

    @property
    def end(self) -> int:
        """The position the next commit will take."""
        ...

    @property
    def synced(self) -> int:
        """The position below which all is known durable."""
        ...

    @property
    def suspect(self) -> bool:
        """Whether what was written, but not synced, may be missing although the machine never went down."""
        ...

    async def clear_suspicion(self) -> None:
        """The ledger has taken it into account. Only called if `suspect`."""
        ...

    def follow(self, position: int) -> AsyncIterator[list[Committed]]:
        """The commits from `position` on, in chunks. Local: ends at the tail."""
        ...

    def read(self, object: int, start: int, length: int) -> bytearray:
        """Payload bytes, fresh and writable. Blocks: call it on a thread. FileNotFoundError if dropped."""
        ...

    async def roll(self) -> None:
        """Finish the current object; the next append starts a new one. No-op on an empty object."""
        ...

    async def seal(self, object: int, index: bytes) -> None:
        """Attach the index to a finished object, durably. Repeating it with the same index is a no-op."""
        ...

    def read_index(self, object: int) -> bytes:
        """The index of a sealed object. Blocks: call it on a thread. LogDamaged if no copy is whole."""
        ...

    def url(self, object: int) -> str | None:
        """Where a reader on this machine finds the object's bytes, counted as `Placement.start` is.

        None: they are in an object store, see `pieces`."""
        ...

    async def pieces(self, object: int, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        """What of the store holds these (start, length) of an object that has no URL, by rising start.

        Raises FileNotFoundError if it was dropped, Unavailable."""
        ...

    async def distrust(self, object: int, start: int, length: int) -> None:
        """Bytes of an object came back damaged: let go of what a cache has of them, so that another read tells whether
        they are damaged where they are stored. Raises as `pieces` where there is a cache."""
        ...

    def objects(self) -> list[LogObject]:
        """Every object that still exists, by number."""
        ...

    async def drop(self, object: int) -> None:
        """Delete a sealed object. Idempotent."""
        ...

    async def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint durably and forget all but the newest few."""
        ...

    def load_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that is whole."""
        ...

    async def close(self) -> None: ...


class SharedCommitLog(CommitLog, Protocol):
    """A commit log that several brokers write to.

    Its `append` also raises Overtaken, BrokerFenced (a newer life of this broker writes, or it was expelled),
    Stale (too long without news of the tail: rejoin, with a new epoch), BehindCheckpoint (the position was truncated:
    load the newest checkpoint) and Unavailable (bounded retries did not tell whether it was written: the next call
    settles it first). It comes after all that `follow` and Overtaken gave to the caller: after opening, follow up
    to `end` before the first one."""

    async def prepare(self, entry: Buffer, slices: Sequence[Buffer]) -> object:
        """Upload what is large of a commit. Calls may overlap; `append` takes what this returns.

        If it never comes to that, `collect_orphans` finds the upload in the end."""
        ...

    async def append(
        self, entry: Buffer, slices: Sequence[Buffer], prepared: object | None = None
    ) -> Placement:
        """As a log of one writer does, with what was uploaded for it before. Calls do not overlap."""
        ...

    async def checkpoints(self) -> list[int]:
        """Positions of the checkpoints that are kept, by whomever they were saved, rising."""
        ...

    async def collect_orphans(self) -> int:
        """Delete uploads that never became commits, once nobody can have a use for them. Returns how many."""
        ...

    def follow(self, position: int, *, wait: bool = False) -> AsyncIterator[list[Committed]]:
        """The commits from `position` on, in chunks: up to the tail, or with `wait` past it, without an end.

        Raises BehindCheckpoint if they were truncated: load the newest checkpoint and follow from there."""
        ...

    async def rejoin(self) -> int:
        """Read up to the tail after being Stale. Returns its position: follow up to there, then append again."""
        ...

    async def refresh(self) -> None:
        """Learn what other brokers sealed and dropped."""
        ...

    async def tail(self) -> int:
        """One past the last commit of anybody, read now from where the log lives: what a barrier waits for."""
        ...
