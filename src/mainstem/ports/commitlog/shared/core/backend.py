"""What a backend of the shared log answers.

The core decides: which position and object a commit goes to, when a writer is out of date, when an upload is reused,
what a follower sees, when an object counts as sealed, which checkpoints are kept and how far the log may be truncated.
A backend stores: it puts uploads and records, claims a position so that only one writer gets it, lists what is there,
and says when more has come. The four protocols below are all that the core calls.

A backend is bound to one event loop, except for what `SharedLog` runs on its blocking thread: `ObjectBackend.read`,
`is_lost` and `index`, `CheckpointBackend.known_names` and `get`, `CommitBackend.starts_object`. Those may use only the
object store.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from mainstem.errors import BehindCheckpoint
from mainstem.ports.commitlog.port import Buffer, Committed, Piece

if TYPE_CHECKING:
    from mainstem.ports.commitlog.shared.core.fairness import Fairness
    from mainstem.ports.commitlog.shared.core.freshness import Mark
    from mainstem.ports.commitlog.shared.core.objects import OpenObject


class CommitHead(Protocol):
    """The facts about a commit that the core needs, in whatever record the backend stores."""

    @property
    def position(self) -> int: ...
    @property
    def id(self) -> bytes:
        """Unique to the commit; also names its upload."""
        ...

    @property
    def object(self) -> int: ...
    @property
    def first(self) -> int | None:
        """Position of the object's first commit; None if the record does not say."""
        ...

    @property
    def start(self) -> int:
        """Payload bytes of the object before this commit."""
        ...

    @property
    def payload_length(self) -> int: ...
    @property
    def stored_bytes(self) -> int:
        """What the commit counts towards the size of its object."""
        ...


class SealedObject(Protocol):
    """The facts about a sealed object that the core needs."""

    @property
    def number(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes of payload."""
        ...


H = TypeVar("H", bound=CommitHead)
S = TypeVar("S", bound=SealedObject)
S_contra = TypeVar("S_contra", bound=SealedObject, contravariant=True)


class Floor(NamedTuple):
    """Where the log starts: commits before it were truncated."""

    position: int = 0
    object: int = 0  # the last object that ended there; objects are numbered from 1


class NextPlace(NamedTuple):
    """Where the next commit goes."""

    position: int
    object: int
    first: int  # position of the object's first commit
    start: int  # payload bytes of the object before it
    weight: int  # the same with records and entries


class DecodedCommit(NamedTuple, Generic[H]):
    head: H
    commit: Committed


class Upload(NamedTuple):
    """What was stored of a commit before it takes its position."""

    id: bytes
    slices: tuple[Buffer, ...]
    length: int
    crc: int
    payload_apart: bool  # else the payload goes into the commit's record
    entry: bytes | None  # the entry, if it is too large for the record
    since: Mark

    def matches(self, entry: Buffer, slices: Sequence[Buffer], crc: int) -> bool:
        """Whether a commit can use it. An entry inside the record may have changed."""
        same_entry = self.entry is None or self.entry == entry
        return crc == self.crc and same_entry and self.slices == tuple(slices)

    def content(self) -> list[Buffer]:
        """What is stored: the payload, then the entry."""
        payload = self.slices if self.payload_apart else ()
        return [*payload, self.entry] if self.entry is not None else [*payload]

    @property
    def stored_bytes(self) -> int:
        return sum(map(len, self.content()))


class Attempt(NamedTuple, Generic[H]):
    """The result of a claim. If neither field is set, the object takes no more commits: claim the next place."""

    head: H | None  # our commit, which is written
    others: Sequence[DecodedCommit[H]] = ()  # commits that have the position and those after it, before ours


class SealedListing(NamedTuple, Generic[S]):
    """What the store says of the log's objects."""

    sealed: dict[int, S]  # by number
    dropped: dict[int, S]
    floor: Floor


class CheckpointName(NamedTuple):
    position: int
    token: bytes


class StoredState(NamedTuple):
    """The state of a checkpoint, compressed."""

    size: int  # uncompressed
    content: bytes


class Truncated(BehindCheckpoint):
    """The commit asked for is below the floor."""

    def __init__(self, floor: Floor) -> None:
        super().__init__(
            f"commits before position {floor.position} were truncated: load the newest checkpoint"
        )
        self.floor = floor


class CommitBackend(Protocol[H]):
    """Write and read commits: put, compare-and-swap, list, watch."""

    @property
    def entry_bytes_max(self) -> int:
        """A larger entry is uploaded; a smaller one goes into the commit's record."""
        ...

    @property
    def payload_bytes_max(self) -> int:
        """A larger payload is uploaded; a smaller one goes into the commit's record."""
        ...

    @property
    def cheap_payload_bytes_max(self) -> int:
        """The same where cost counts more than latency: 0 if the store costs less than the record's place."""
        ...

    @property
    def upload_s_max(self) -> float:
        """An upload older than this may be deleted as an orphan at any moment."""
        ...

    def check_writable(self) -> None:
        """Raises ReadOnly if the log was opened for reading."""
        ...

    def new_token(self) -> bytes:
        """16 unique bytes."""
        ...

    async def put_upload(self, id: bytes, content: Sequence[Buffer]) -> None: ...

    async def delete_upload(self, id: bytes, length: int) -> None:
        """Idempotent."""
        ...

    async def claim(self, place: NextPlace, entry: Buffer, upload: Upload, fairness: Fairness) -> Attempt[H]:
        """Write the commit if its position is free. A lost answer is settled by the commit's id first.

        Reports each race to `fairness`, passes its request on to the other writers and theirs to it.

        Raises BrokerFenced, BehindCheckpoint, Stale, NoSpace, or Unavailable if the outcome is unknown."""
        ...

    async def newer(self, position: int) -> Sequence[DecodedCommit[H]]:
        """Commits from the position on; none at the tail. Raises LogDamaged or NewerVersion."""
        ...

    def follow(self, position: int) -> AsyncGenerator[Sequence[DecodedCommit[H]], None]:
        """Commits from the position on, without end. An empty chunk says that the tail is reached; asking for the next
        one waits. Raises Truncated, LogDamaged, NewerVersion or Unavailable."""
        ...

    async def tail(self) -> int:
        """One past the last commit of any writer. Raises as `follow`."""
        ...

    async def floor(self) -> Floor: ...

    async def starts_object(self, position: int) -> bool | None:
        """Whether an object starts at the position, which makes the one before it final; None: no commit is there."""
        ...

    async def close(self) -> None: ...


class ObjectBackend(Protocol[H, S]):
    """Seal, read and drop objects."""

    async def refresh(self) -> SealedListing[S]:
        """Every sealed or dropped object, and the floor."""
        ...

    async def seal(self, unsealed: OpenObject[H], index: bytes) -> tuple[S, bool]:
        """The seal that stands, and whether this call made it. Raises Overtaken if the object has grown."""
        ...

    async def drop(self, sealed: S) -> None:
        """Mark the object as dropped, then delete it. Idempotent."""
        ...

    async def forget(self, dropped: Sequence[S]) -> None:
        """Delete what is left of dropped objects whose commits are truncated."""
        ...

    async def read(self, source: OpenObject[H] | S, start: int, length: int) -> bytearray:
        """Payload bytes. Raises NotFound."""
        ...

    async def is_lost(self, source: OpenObject[H] | S) -> bool:
        """After NotFound: whether the object was not dropped, so that the store has lost its bytes."""
        ...

    async def index(self, sealed: S) -> bytes:
        """Raises NotFound if the object is dropped, LogDamaged or NewerVersion."""
        ...

    async def pieces(self, source: OpenObject[H] | S, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        """Raises NotFound if the object is dropped."""
        ...


class CheckpointBackend(Protocol):
    """Store checkpoints."""

    @property
    def newest_position(self) -> int:
        """The newest position among the checkpoints listed last; 0 if the backend does not track it."""
        ...

    async def names(self) -> list[CheckpointName]:
        """Every checkpoint, by rising position."""
        ...

    async def known_names(self) -> list[CheckpointName]:
        """The same, as far as the object store alone can tell."""
        ...

    async def put(self, name: CheckpointName, state: StoredState) -> None:
        """Durably. Where a position has room for one, the first one stays."""
        ...

    async def get(self, name: CheckpointName) -> StoredState | None:
        """None if it is damaged or deleted. Raises NewerVersion."""
        ...

    async def delete(self, name: CheckpointName) -> None:
        """Idempotent."""
        ...


class TruncationBackend(Protocol[S_contra]):
    """Delete what is no longer needed."""

    async def old_enough(self, settled: Sequence[S_contra]) -> int:
        """How many of these objects, from the first on, are past their retention."""
        ...

    async def truncate(self, old: Floor, new: Floor) -> Floor:
        """Move the floor, then delete the commits below it, also those that an earlier call left.

        Returns the floor that stands: `old`, if another broker moved it."""
        ...

    async def collect_orphans(self) -> int:
        """Delete old uploads that no commit and no sealed object names. Returns how many."""
        ...
