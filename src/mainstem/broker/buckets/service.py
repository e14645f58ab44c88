"""Users' buckets: objects, their versions, and multipart uploads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from mainstem.broker.buckets.blobs import Blobs, Span, blob_key
from mainstem.errors import (
    BucketNotFound,
    InvalidInput,
    NotFound,
    ObjectNotFound,
    Rejected,
    UploadNotFound,
)
from mainstem.ledger.buckets import (
    ENABLED,
    NULL_VERSION,
    RESERVED,
    SUSPENDED,
    AddBucket,
    AlterBucket,
    BeginUpload,
    Bucket,
    CompleteUpload,
    DeleteObject,
    EndUpload,
    MultipartUpload,
    ObjectChange,
    ObjectVersion,
    Precondition,
    PutObject,
    PutUploadPart,
    RemoveBucket,
    UploadPart,
    bad_key,
)
from mainstem.log.log import Log
from mainstem.ports.clock import Clock, Random
from mainstem.ports.objectstore.port import ObjectStore

__all__ = [
    "ENABLED",
    "NULL_VERSION",
    "RESERVED",
    "SUSPENDED",
    "Bucket",
    "BucketService",
    "ListedObjects",
    "MultipartUpload",
    "ObjectChange",
    "ObjectVersion",
    "Precondition",
    "Turn",
    "UploadPart",
    "collapsed",
]

UPLOAD_MS_MAX = 7 * 24 * 3_600_000  # a multipart upload that is not completed by then is aborted
KEYS_PER_TURN = 1_000  # examined by a listing before others are served
Headers = tuple[tuple[str, str], ...]
Turn = Callable[[], Awaitable[None]]


class ListedObjects(NamedTuple):
    """One page of a listing."""

    objects: list[tuple[str, ObjectVersion]]
    prefixes: list[str]  # common prefixes, up to the delimiter
    next: str  # key or common prefix that the page ends with; empty: it is the last page


class ListedVersions(NamedTuple):
    versions: list[tuple[str, ObjectVersion, bool]]  # key, version, whether it is the current one
    prefixes: list[str]
    next_key: str
    next_version: str


class BucketService:
    def __init__(self, log: Log, store: ObjectStore, clock: Clock, random: Random) -> None:
        self._log = log
        self._clock = clock
        self._random = random
        self.blobs = Blobs(log, store, clock, random)

    # Buckets

    def all(self) -> list[Bucket]:
        return list(self._log.ledger.buckets)

    def get(self, name: str) -> Bucket:
        """Raises BucketNotFound."""
        found = self._log.ledger.buckets.get(name)
        if found is None:
            raise BucketNotFound(name)
        return found

    async def create(self, name: str, namespace: str = "") -> Bucket:
        """Raises BucketExists, InvalidName, LimitReached."""
        made: Bucket = await self._log.propose(AddBucket(Bucket(name, namespace, self._clock.now_ms())))
        return made

    async def set_versioning(self, name: str, versioning: str) -> None:
        """Raises BucketNotFound, InvalidInput."""
        await self._log.propose(AlterBucket(name, versioning))

    async def delete(self, name: str) -> None:
        """Raises BucketNotFound, BucketNotEmpty."""
        removed: ObjectChange = await self._log.propose(RemoveBucket(name))
        self.blobs.free(removed.freed)

    # Objects

    def version(self, bucket: str, key: str, id: str = "") -> ObjectVersion:
        """A version, or the current one; it may be a delete marker. Raises BucketNotFound, ObjectNotFound."""
        self.get(bucket)
        history = self._log.ledger.buckets.history(bucket, key)
        for version in () if history is None else history.versions:
            if not id or version.id == id:
                return version
        raise ObjectNotFound(key)

    def spans(self, version: ObjectVersion, start: int, length: int) -> list[Span]:
        """Where a range of an object's bytes is stored."""
        found, at = [], 0
        for id, size in version.blobs:
            first, last = max(start, at), min(start + length, at + size)
            if first < last:
                found.append(Span(blob_key(id), first - at, last - first))
            at += size
        return found

    async def put(
        self,
        bucket: str,
        key: str,
        blob: tuple[str, int],
        *,
        etag: str,
        headers: Headers,
        checksum: str = "",
        condition: Precondition | None = None,
    ) -> ObjectVersion:
        """Make an object of a stored blob. Raises BucketNotFound, PreconditionFailed, LimitReached, InvalidInput."""
        version = ObjectVersion(
            self._new_version(), self._clock.now_ms(), blob[1], etag, (blob,), headers, checksum
        )
        command = PutObject(bucket, key, version, condition or Precondition())
        stored = await self._change(command, (blob[0],))
        return stored.version or version

    async def delete_object(
        self, bucket: str, key: str, version: str = "", condition: Precondition | None = None
    ) -> ObjectChange:
        """Delete a version, or hide the object behind a delete marker. Raises BucketNotFound, PreconditionFailed."""
        marker = ObjectVersion(self._new_version(), self._clock.now_ms(), marker=True)
        return await self._change(DeleteObject(bucket, key, version, marker, condition or Precondition()))

    async def _change(
        self, command: PutObject | DeleteObject | PutUploadPart | CompleteUpload, new: Sequence[str] = ()
    ) -> ObjectChange:
        try:
            changed: ObjectChange = await self._log.propose(command)
        except (Rejected, InvalidInput, NotFound):
            self.blobs.free(new)  # nothing refers to them, and nothing will
            raise
        self.blobs.free(changed.freed)
        return changed

    def _new_version(self) -> str:
        return f"{self._clock.now_ms():012x}{self._random.token(10).hex()}"

    # Listing

    async def list_objects(
        self,
        bucket: str,
        *,
        prefix: str,
        delimiter: str,
        after: str,
        most: int,
        sees: Callable[[str], bool],
        turn: Turn,
    ) -> ListedObjects:
        """The current objects behind `after`, which is a key or a common prefix. `turn` is awaited now and then.

        Raises BucketNotFound."""
        self.get(bucket)
        return await collapsed(partial(self._current, bucket), prefix, delimiter, after, most, sees, turn)

    def _current(self, bucket: str, start: str) -> Iterator[tuple[str, ObjectVersion | None]]:
        buckets = self._log.ledger.buckets
        for key in buckets.keys_from(bucket, start):
            yield key, buckets.current(bucket, key)

    async def list_versions(
        self,
        bucket: str,
        *,
        prefix: str,
        delimiter: str,
        after_key: str,
        after_version: str,
        most: int,
        sees: Callable[[str], bool],
        turn: Turn,
    ) -> ListedVersions:
        """All versions behind a key and version, the newest of each key first. Raises BucketNotFound."""
        self.get(bucket)
        buckets = self._log.ledger.buckets
        found: list[tuple[str, ObjectVersion, bool]] = []
        prefixes: list[str] = []
        last = ("", "")
        keys = buckets.keys_from(bucket, max(prefix, after_key))
        left = KEYS_PER_TURN
        while (key := next(keys, None)) is not None and key.startswith(prefix):
            left -= 1
            if not left:
                await turn()
                keys, left = buckets.keys_from(bucket, key), KEYS_PER_TURN  # the bucket may have changed
                continue
            history = buckets.history(bucket, key)
            common = _common_prefix(key, prefix, delimiter)
            if history is None or not sees(key) or (common and after_key.startswith(common)):
                continue
            if common:
                if prefixes and prefixes[-1] == common:
                    continue
                if len(found) + len(prefixes) >= most:
                    return ListedVersions(found, prefixes, *last)
                prefixes.append(common)
                last = (common, "")
                continue
            behind = key > after_key
            if key == after_key and not after_version:
                continue
            for number, version in enumerate(history.versions):
                if not behind:
                    behind = version.id == after_version
                    continue
                if len(found) + len(prefixes) >= most:
                    return ListedVersions(found, prefixes, *last)
                found.append((key, version, number == 0))
                last = (key, version.id)
        return ListedVersions(found, prefixes, "", "")

    # Multipart uploads

    async def begin_upload(
        self, bucket: str, key: str, *, headers: Headers, algorithm: str, principal: str
    ) -> MultipartUpload:
        """Raises BucketNotFound, LimitReached, InvalidInput."""
        id = self._random.token(16).hex()
        upload = MultipartUpload(id, bucket, key, self._clock.now_ms(), principal, headers, algorithm)
        begun: MultipartUpload = await self._log.propose(BeginUpload(upload))
        return begun

    def upload(self, bucket: str, key: str, id: str) -> MultipartUpload:
        """Raises UploadNotFound."""
        found = self._log.ledger.buckets.upload(id)
        if found is None or (found.bucket, found.key) != (bucket, key):
            raise UploadNotFound(id)
        return found

    def uploads(self, bucket: str) -> list[MultipartUpload]:
        return self._log.ledger.buckets.uploads_of(bucket)

    async def put_part(
        self, upload: str, number: int, blob: tuple[str, int], etag: str, checksum: str
    ) -> UploadPart:
        """Raises UploadNotFound, InvalidInput."""
        part = UploadPart(number, blob[0], blob[1], etag, self._clock.now_ms(), checksum)
        await self._change(PutUploadPart(upload, part), (blob[0],))
        return part

    async def complete_upload(
        self,
        upload: MultipartUpload,
        numbers: Sequence[int],
        *,
        etag: str,
        checksum: str,
        condition: Precondition | None = None,
    ) -> ObjectVersion:
        """Raises UploadNotFound, BucketNotFound, InvalidInput, PreconditionFailed, LimitReached."""
        version = ObjectVersion(self._new_version(), self._clock.now_ms(), etag=etag, checksum=checksum)
        command = CompleteUpload(upload.id, tuple(numbers), version, condition or Precondition())
        return (await self._change(command)).version or version

    async def end_upload(self, id: str) -> None:
        """Forget an upload and its parts. Raises UploadNotFound."""
        ended: ObjectChange = await self._log.propose(EndUpload(id))
        self.blobs.free(ended.freed)

    def part_chunks(self, parts: Sequence[UploadPart]) -> AsyncIterator[bytes]:
        """The bytes of some parts of an upload."""
        return self.blobs.chunks([Span(blob_key(part.blob), 0, part.size) for part in parts])

    # Upkeep

    async def collect(self) -> int:
        """Abort old uploads, and delete bytes that nothing refers to. Returns how many blobs were deleted."""
        for upload in self._log.ledger.buckets.expired_uploads(self._clock.now_ms() - UPLOAD_MS_MAX):
            await self.end_upload(upload.id)
        return await self.blobs.collect()


async def collapsed(
    listed_from: Callable[[str], Iterator[tuple[str, ObjectVersion | None]]],
    prefix: str,
    delimiter: str,
    after: str,
    most: int,
    sees: Callable[[str], bool],
    turn: Turn,
) -> ListedObjects:
    """One page of a listing, in which keys that share a prefix up to the delimiter are one entry.

    `listed_from` gives the objects in order, from a key on."""
    objects: list[tuple[str, ObjectVersion]] = []
    prefixes: list[str] = []
    last = ""
    found = listed_from(max(prefix, after))
    left = KEYS_PER_TURN
    while True:
        key, version = next(found, (None, None))
        if key is None or not key.startswith(prefix):
            return ListedObjects(objects, prefixes, "")
        left -= 1
        if not left:
            await turn()
            found, left = listed_from(key), KEYS_PER_TURN  # the bucket may have changed
            continue
        common = _common_prefix(key, prefix, delimiter)
        if common and after.startswith(common):
            found = listed_from(common + _LAST_CHARACTER)
            continue
        if key <= after or version is None or version.marker or not sees(key):
            continue
        if len(objects) + len(prefixes) >= most:
            return ListedObjects(objects, prefixes, last)
        if common:
            prefixes.append(common)
            found = listed_from(common + _LAST_CHARACTER)  # past the others with this prefix
        else:
            objects.append((key, version))
        last = common or key


def _common_prefix(key: str, prefix: str, delimiter: str) -> str:
    at = key.find(delimiter, len(prefix)) if delimiter else -1
    return "" if at < 0 else key[: at + len(delimiter)]


_LAST_CHARACTER = chr(0x10FFFF)


def check_key(key: str) -> None:
    """Raises InvalidInput."""
    wrong = bad_key(key)
    if wrong is not None:
        raise wrong
