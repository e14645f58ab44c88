"""The commit log port: one ordered sequence of entries, each with its payload.

A commit is an *entry* (opaque bytes, encoded by the ledger) and a *payload* (slices of record batches, in the order the
entry lists them). The backend decides where the payload lives and numbers the *objects* that hold it. The entry's
*position* is its place in the log: 0, 1, 2, … without gaps.

Rules that every backend keeps, and one contract suite checks:
- `append` returns once the commit is written; `sync` once everything written before the call is durable.
- A failed append publishes nothing: no later `follow` shows it, and the next append takes its position.
- `follow` gives exactly the commits that were written, in order. It marks damage and never hides it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview


class Placement(NamedTuple):
    """Where a commit went."""

    position: int  # place of the entry in the log
    object: int  # number of the object that holds the payload
    start: int  # byte inside that object where the payload starts


class Piece(NamedTuple):
    """Bytes of a log object that one object of the store holds."""

    start: int  # in the log object, counted as `Placement.start`
    length: int
    key: str  # in the store
    at: int  # where they begin in the store's object


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
    cold: bool = False  # of a local log: only an object store has it


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state after every commit before `position`."""

    position: int
    state: bytes


class Overtaken(Exception):
    """Other writers' commits come first, and ours was not written: apply them, then append again."""

    def __init__(self, commits: list[Committed]) -> None:
        super().__init__(f"{len(commits)} commits of other writers come first: apply them, then append again")
        self.commits = commits  # in order, from the position that the append tried to take


class CommitLog(Protocol):
    async def append(self, entry: Buffer, slices: Sequence[Buffer], crc: int | None = None) -> Placement:
        """Write one commit. Calls do not overlap: the caller groups commands meanwhile. `crc`: CRC32C of all slices
        joined, if the caller knows it.

        Raises NoSpace (nothing was written; try again) or ReadOnly (an earlier fsync failed)."""
        ...

    async def append_synced(
        self, entry: Buffer, slices: Sequence[Buffer], crc: int | None = None
    ) -> tuple[Placement, float | None]:
        """As `append`, for a commit that a caller waits for: syncs in the same call where that saves a thread switch.
        Also returns the seconds the sync took; None if it is left to `sync`.

        Also raises ReadOnly if the sync failed; the commit may still be written."""
        ...

    def writes_now(self, size: int, *, may_block: bool = False) -> bool:
        """Whether `append_now` takes a commit of about `size` bytes at once, and is likely to be fast. A caller that
        `may_block` does not need the latter."""
        ...

    def append_now(self, entry: Buffer, slices: Sequence[Buffer], crc: int | None = None) -> Placement:
        """As `append`, in the calling thread, with no event loop. Only after `writes_now`."""
        ...

    def syncs_now(self) -> bool:
        """Whether `sync_now` is likely to be fast: nothing else syncs, and recent syncs were fast."""
        ...

    def sync_now(self, position: int) -> float | None:
        """Make the commit at `position`, and all before it, durable, in the calling thread. Returns the seconds that
        the sync took; None if another thread's sync covered it. Raises ReadOnly, permanently."""
        ...

    def sync_soon(self, ended: Callable[[int, Exception | None], None]) -> bool:
        """Start a sync as `sync` does, with no task: `ended` is called on the event loop with the position below which
        all is durable, or the error, which is final. It is not called if the log is closed first. False: use `sync`."""
        ...

    async def sync(self) -> int:
        """Make everything written so far durable. Returns the position below which all is durable.

        May run in parallel with `append`. A failure is final: from then on `append` and `sync` raise ReadOnly."""
        ...

    @property
    def identity(self) -> bytes:
        """16 random bytes that distinguish this log from every other and never change."""
        ...

    @property
    def end(self) -> int:
        """The position the next commit will take."""
        ...

    @property
    def synced(self) -> int:
        """The position below which all is known to be durable."""
        ...

    @property
    def suspect(self) -> bool:
        """Whether unsynced writes may be missing although the machine never went down."""
        ...

    async def clear_suspicion(self) -> None:
        """The ledger has recorded it. Only called if `suspect`."""
        ...

    def follow(self, position: int) -> AsyncIterator[list[Committed]]:
        """The commits from `position` on, in chunks. Local: ends at the tail."""
        ...

    def read(self, object: int, start: int, length: int) -> bytearray:
        """Payload bytes in a new, writable buffer. Blocks: call it on a thread. Raises FileNotFoundError if dropped."""
        ...

    async def roll(self) -> None:
        """Finish the current object; the next append starts a new one. No-op on an empty object."""
        ...

    async def seal(self, object: int, index: bytes) -> None:
        """Attach the index to a finished object, durably. Repeating it with the same index is a no-op."""
        ...

    def read_index(self, object: int) -> bytes:
        """The index of a sealed object. Blocks: call it on a thread. Raises LogDamaged if no copy is intact."""
        ...

    def url(self, object: int) -> str | None:
        """Where a reader on this machine finds the object's bytes, counted as `Placement.start`.

        None: an object store has them, see `pieces`."""
        ...

    async def pieces(self, object: int, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        """Which objects of the store hold these (start, length) ranges of an object without a URL, by rising start.

        Raises FileNotFoundError if it was dropped, or Unavailable."""
        ...

    async def distrust(self, object: int, start: int, length: int) -> None:
        """Bytes of an object came back damaged: remove them from any cache, so that the next read shows whether the
        stored bytes are damaged. Raises as `pieces` where there is a cache."""
        ...

    def objects(self) -> list[LogObject]:
        """Every object that still exists, by number."""
        ...

    async def drop(self, object: int) -> None:
        """Delete a sealed object. Idempotent."""
        ...

    async def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint durably and delete all but the newest few."""
        ...

    def load_checkpoint(self) -> Checkpoint | None:
        """The newest intact checkpoint."""
        ...

    async def close(self) -> None: ...


class SharedCommitLog(CommitLog, Protocol):
    """A commit log that several brokers write to.

    Its `append` also raises Overtaken, BrokerFenced (a newer process of this broker writes, or it was expelled), Stale
    (no news of the tail for too long: rejoin with a new epoch), BehindCheckpoint (the position was truncated: load the
    newest checkpoint) and Unavailable (bounded retries did not show whether it was written: the next call settles
    that first). A commit comes after all that `follow` and Overtaken gave the caller: after opening, follow up to
    `end` before the first append."""

    @property
    def inline_bytes(self) -> int:
        """A payload up to this size needs no upload: `prepare` returns at once. May change at any time."""
        ...

    async def prepare(self, entry: Buffer, slices: Sequence[Buffer], *, by_reference: bool = False) -> object:
        """Upload the large parts of a commit. Calls may overlap; `append` takes what this returns.
        `by_reference`: also a small payload, where the store costs less than the place of small ones.

        If the append never happens, `collect_orphans` finds the upload later."""
        ...

    async def append(
        self, entry: Buffer, slices: Sequence[Buffer], prepared: object | None = None
    ) -> Placement:
        """As `CommitLog.append`, with what `prepare` uploaded. Calls do not overlap.

        Others' commits may come before it that the caller has not seen: follow up to its position, then apply it."""
        ...

    async def checkpoints(self) -> list[int]:
        """Positions of the checkpoints that are kept, whichever broker saved them, rising."""
        ...

    async def collect_orphans(self) -> int:
        """Delete uploads that never became commits, once no writer can still use them. Returns how many."""
        ...

    def follow(self, position: int, *, wait: bool = False) -> AsyncIterator[list[Committed]]:
        """The commits from `position` on, in chunks: up to the tail, or with `wait` past it, without end.

        Raises BehindCheckpoint if they were truncated: load the newest checkpoint and follow from there."""
        ...

    async def rejoin(self) -> int:
        """Read up to the tail after Stale. Returns its position: follow up to there, then append again."""
        ...

    async def refresh(self) -> None:
        """Learn what other brokers sealed and dropped."""
        ...

    async def tail(self) -> int:
        """One past the last commit of any broker, read now from the store: what a barrier waits for."""
        ...
