"""Buckets: users' objects and multipart uploads. The ledger holds the metadata, the object store the bytes.

A *blob* is one file of the object store. Its id begins with the ledger time at which its upload began, in hex: the
ledger rejects a blob that is older than `BLOB_COMMIT_MS_MAX`, and collection deletes unknown blobs that are older, so
no object can refer to a blob that was collected.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterator

import msgspec

from mainstem.errors import (
    BucketExists,
    BucketNotEmpty,
    BucketNotFound,
    InvalidInput,
    InvalidName,
    LimitReached,
    ObjectNotFound,
    PreconditionFailed,
    UploadNotFound,
)
from mainstem.ledger.keyed import Keyed, fields_hash
from mainstem.ledger.section import Command, Moment, Section, applies

BUCKETS_MAX = 1_000  # of users, at the S3 door
BUCKET_OBJECTS_MAX = 1_000_000  # keys of all buckets: each takes about 1 KB of memory
BUCKET_KEY_BYTES_MAX = 1024
OBJECT_VERSIONS_MAX = 1_000  # of one key
UPLOADS_MAX = 10_000  # multipart uploads under way

BLOB_COMMIT_MS_MAX = 24 * 3_600_000  # from the start of an upload to the command that refers to its bytes
BLOB_TIME_DIGITS = 12  # hex digits at the start of a blob's id
NULL_VERSION = "null"  # of objects stored while versioning is off
PARTS_PER_OBJECT_MAX = 10_000

ENABLED, SUSPENDED = "Enabled", "Suspended"

_NAME = re.compile(r"(?=.{3,63}$)[a-z0-9]+(-+[a-z0-9]+)*(\.[a-z0-9]+(-+[a-z0-9]+)*)*")
_ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}")
_BLOB = re.compile(rf"[0-9a-f]{{{BLOB_TIME_DIGITS + 16}}}")
RESERVED = frozenset({"tables"})  # what topics own

Blob = tuple[str, int]  # id and size


class Bucket(msgspec.Struct, frozen=True, array_like=True):
    """One bucket; also the form in a checkpoint."""

    name: str
    namespace: str
    created_ms: int
    versioning: str = ""  # ENABLED, SUSPENDED; empty: never enabled


class ObjectVersion(msgspec.Struct, frozen=True, array_like=True):
    """One version of an object, or a delete marker."""

    id: str
    modified_ms: int
    size: int = 0
    etag: str = ""  # without quotes
    blobs: tuple[Blob, ...] = ()  # the bytes, in order: one for each part of a multipart upload
    headers: tuple[tuple[str, str], ...] = ()  # content type, user metadata and the like, sorted
    checksum: str = ""  # "CRC32=base64", as the client sent it
    marker: bool = False  # a delete marker


class ObjectHistory(msgspec.Struct, frozen=True, array_like=True):
    """The versions of one key, the newest first; also the form in a checkpoint."""

    bucket: str
    key: str
    versions: tuple[ObjectVersion, ...]


class UploadPart(msgspec.Struct, frozen=True, array_like=True):
    number: int
    blob: str
    size: int
    etag: str
    modified_ms: int
    checksum: str = ""


class MultipartUpload(msgspec.Struct, frozen=True, array_like=True):
    """A multipart upload; also the form in a checkpoint."""

    id: str
    bucket: str
    key: str
    started_ms: int
    principal: str
    headers: tuple[tuple[str, str], ...] = ()
    algorithm: str = ""  # of the checksums of its parts; empty: none
    parts: tuple[UploadPart, ...] = ()  # by number


class BucketStates(msgspec.Struct, frozen=True, array_like=True):
    """The section in a checkpoint."""

    buckets: list[Bucket]
    objects: list[ObjectHistory]
    uploads: list[MultipartUpload]


class Precondition(msgspec.Struct, frozen=True, array_like=True):
    """What must hold of the current version for a change to apply."""

    absent: bool = False  # If-None-Match: *
    etag: str = ""  # If-Match: this one, or * for any
    other: str = ""  # If-None-Match: not this one


class AddBucket(Command, frozen=True, tag=230):
    bucket: Bucket


class AlterBucket(Command, frozen=True, tag=231):
    name: str
    versioning: str


class RemoveBucket(Command, frozen=True, tag=232):
    name: str


class PutObject(Command, frozen=True, tag=233):
    """Store a version. Where versioning is off or suspended, it replaces the version `null`."""

    bucket: str
    key: str
    version: ObjectVersion
    condition: Precondition = Precondition()


class DeleteObject(Command, frozen=True, tag=234):
    """Without a version: add a delete marker, or delete the object if its bucket was never versioned."""

    bucket: str
    key: str
    version: str
    marker: ObjectVersion
    condition: Precondition = Precondition()


class BeginUpload(Command, frozen=True, tag=235):
    upload: MultipartUpload


class PutUploadPart(Command, frozen=True, tag=236):
    upload: str
    part: UploadPart


class CompleteUpload(Command, frozen=True, tag=237):
    """Make an object of these parts of an upload. `version` has no blobs: they follow from the parts."""

    upload: str
    parts: tuple[int, ...]  # numbers, ascending
    version: ObjectVersion
    condition: Precondition = Precondition()


class EndUpload(Command, frozen=True, tag=238):
    """Forget an upload and its parts."""

    upload: str


class ObjectChange(msgspec.Struct, frozen=True):
    """The result of a change: the version that it made or deleted, and the blobs that nothing refers to any more."""

    version: ObjectVersion | None
    freed: tuple[str, ...]


class Buckets(Section[BucketStates]):
    def __init__(self) -> None:
        self._buckets: Keyed[str, Bucket] = Keyed(fields_hash("bucket"))
        self._objects: Keyed[tuple[str, str], ObjectHistory] = Keyed(fields_hash("object"))
        self._uploads: Keyed[str, MultipartUpload] = Keyed(fields_hash("upload"))
        self._keys: dict[str, list[str]] = {}  # by bucket, sorted; follows from the objects
        self._blobs: set[str] = set()  # that versions and parts refer to

    # Look-up

    def __iter__(self) -> Iterator[Bucket]:
        """By name."""
        return iter(self._buckets)

    def get(self, name: str) -> Bucket | None:
        return self._buckets.get(name)

    def history(self, bucket: str, key: str) -> ObjectHistory | None:
        return self._objects.get((bucket, key))

    def current(self, bucket: str, key: str) -> ObjectVersion | None:
        """The newest version, or delete marker."""
        history = self._objects.get((bucket, key))
        return None if history is None else history.versions[0]

    def keys_from(self, bucket: str, start: str) -> Iterator[str]:
        """The keys of a bucket from `start` on, in order. Do not change the bucket meanwhile."""
        keys = self._keys.get(bucket, [])
        for at in range(bisect_left(keys, start), len(keys)):
            yield keys[at]

    def upload(self, id: str) -> MultipartUpload | None:
        return self._uploads.get(id)

    def uploads_of(self, bucket: str) -> list[MultipartUpload]:
        """By key and start."""
        found = [upload for upload in self._uploads.unordered() if upload.bucket == bucket]
        return sorted(found, key=lambda upload: (upload.key, upload.started_ms, upload.id))

    def expired_uploads(self, before_ms: int) -> list[MultipartUpload]:
        return [upload for upload in self._uploads if upload.started_ms < before_ms]

    def knows(self, blob: str) -> bool:
        return blob in self._blobs

    @property
    def objects(self) -> int:
        return len(self._objects)

    # Buckets

    @applies(AddBucket)
    def add(
        self, command: AddBucket, now: Moment
    ) -> Bucket | BucketExists | InvalidName | LimitReached | InvalidInput:
        bucket = command.bucket
        if bucket.name in self._buckets or bucket.name in RESERVED:
            return BucketExists(bucket.name)
        if not _NAME.fullmatch(bucket.name) or _ADDRESS.fullmatch(bucket.name):
            return InvalidName(
                f"invalid bucket name {bucket.name[:64]!r}: 3 to 63 lower-case letters, digits, - and ."
            )
        full = self._buckets.refusal(bucket.name, BUCKETS_MAX, "buckets")
        if full is not None:
            return full
        if bucket.versioning:
            return InvalidInput("a new bucket is not versioned")
        self._buckets.put(bucket.name, bucket)
        return bucket

    @applies(AlterBucket)
    def alter(self, command: AlterBucket, now: Moment) -> Bucket | BucketNotFound | InvalidInput:
        bucket = self._buckets.get(command.name)
        if bucket is None:
            return BucketNotFound(command.name)
        if command.versioning not in (ENABLED, SUSPENDED):
            return InvalidInput("versioning of a bucket is Enabled or Suspended")
        changed = msgspec.structs.replace(bucket, versioning=command.versioning)
        self._buckets.put(bucket.name, changed)
        return changed

    @applies(RemoveBucket)
    def remove(self, command: RemoveBucket, now: Moment) -> ObjectChange | BucketNotFound | BucketNotEmpty:
        """Uploads to the bucket end with it."""
        bucket = self._buckets.get(command.name)
        if bucket is None:
            return BucketNotFound(command.name)
        if self._keys.get(bucket.name):
            return BucketNotEmpty(bucket.name)
        self._buckets.pop(bucket.name)
        self._keys.pop(bucket.name, None)
        freed: tuple[str, ...] = ()
        for upload in self.uploads_of(bucket.name):
            self._uploads.pop(upload.id)
            freed += tuple(part.blob for part in upload.parts)
        self._blobs.difference_update(freed)
        return ObjectChange(None, freed)

    # Objects

    @applies(PutObject)
    def put(
        self, command: PutObject, now: Moment
    ) -> ObjectChange | BucketNotFound | ObjectNotFound | InvalidInput | PreconditionFailed | LimitReached:
        version = command.version
        wrong = self._bad_blobs([id for id, _ in version.blobs], now)
        if wrong is not None or version.marker:
            return wrong or InvalidInput("a delete marker is not stored as an object")
        return self._put(command.bucket, command.key, version, command.condition)

    def _put(
        self, bucket_name: str, key: str, version: ObjectVersion, condition: Precondition
    ) -> ObjectChange | BucketNotFound | ObjectNotFound | InvalidInput | PreconditionFailed | LimitReached:
        bucket = self._buckets.get(bucket_name)
        if bucket is None:
            return BucketNotFound(bucket_name)
        wrong = bad_key(key)
        if wrong is not None:
            return wrong
        failed = self._unmet(condition, bucket_name, key)
        if failed is not None:
            return failed
        history = self._objects.get((bucket_name, key))
        full = self._objects.refusal((bucket_name, key), BUCKET_OBJECTS_MAX, "objects in buckets")
        if full is not None:
            return full
        versions = () if history is None else history.versions
        freed: tuple[str, ...] = ()
        if bucket.versioning != ENABLED:
            version = msgspec.structs.replace(version, id=NULL_VERSION)
            freed = _blobs_of(one for one in versions if one.id == NULL_VERSION)
            versions = tuple(one for one in versions if one.id != NULL_VERSION)
        elif len(versions) >= OBJECT_VERSIONS_MAX:
            return LimitReached(
                f"object {key[:200]!r} has {OBJECT_VERSIONS_MAX} versions, the maximum: delete some"
            )
        self._store(bucket_name, key, (version, *versions))
        self._blobs.difference_update(freed)
        self._blobs.update(id for id, _ in version.blobs)
        return ObjectChange(version, freed)

    @applies(DeleteObject)
    def delete(
        self, command: DeleteObject, now: Moment
    ) -> ObjectChange | BucketNotFound | ObjectNotFound | PreconditionFailed | LimitReached | InvalidInput:
        bucket = self._buckets.get(command.bucket)
        if bucket is None:
            return BucketNotFound(command.bucket)
        failed = self._unmet(command.condition, command.bucket, command.key)
        if failed is not None:
            return failed
        history = self._objects.get((command.bucket, command.key))
        versions = () if history is None else history.versions
        if command.version:
            return self._delete_version(command.bucket, command.key, versions, command.version)
        if not bucket.versioning:
            return self._delete_version(command.bucket, command.key, versions, NULL_VERSION)
        if not command.marker.marker or command.marker.blobs:
            return InvalidInput("a delete needs a delete marker")
        wrong = bad_key(command.key)
        if wrong is not None:
            return wrong
        return self._put(command.bucket, command.key, command.marker, Precondition())

    def _delete_version(
        self, bucket: str, key: str, versions: tuple[ObjectVersion, ...], id: str
    ) -> ObjectChange:
        gone = next((one for one in versions if one.id == id), None)
        if gone is None:
            return ObjectChange(None, ())
        self._store(bucket, key, tuple(one for one in versions if one is not gone))
        freed = _blobs_of([gone])
        self._blobs.difference_update(freed)
        return ObjectChange(gone, freed)

    def _store(self, bucket: str, key: str, versions: tuple[ObjectVersion, ...]) -> None:
        known = (bucket, key) in self._objects
        if versions:
            self._objects.put((bucket, key), ObjectHistory(bucket, key, versions))
            if not known:
                insort(self._keys.setdefault(bucket, []), key)
        elif known:
            self._objects.pop((bucket, key))
            keys = self._keys[bucket]
            del keys[bisect_left(keys, key)]

    def _unmet(
        self, condition: Precondition, bucket: str, key: str
    ) -> PreconditionFailed | ObjectNotFound | None:
        if not (condition.absent or condition.etag or condition.other):
            return None
        current = self.current(bucket, key)
        if current is not None and current.marker:
            current = None
        if condition.absent and current is not None:
            return PreconditionFailed(f"object {key[:200]!r} exists")
        if condition.etag and current is None:
            return ObjectNotFound(key)
        if current is not None and (
            condition.etag not in ("", "*", current.etag) or condition.other == current.etag
        ):
            return PreconditionFailed(f"object {key[:200]!r} has the ETag {current.etag}")
        return None

    def _bad_blobs(self, blobs: list[str], now: Moment) -> InvalidInput | None:
        if len(set(blobs)) != len(blobs) or any(id in self._blobs for id in blobs):
            return InvalidInput("a blob belongs to one object only")
        for id in blobs:
            if not _BLOB.fullmatch(id):
                return InvalidInput("the id of a blob is malformed")
            if started_ms(id) + BLOB_COMMIT_MS_MAX <= now.time_ms:
                return InvalidInput("the upload took too long, and its bytes may be deleted: upload again")
        return None

    # Multipart uploads

    @applies(BeginUpload)
    def begin(
        self, command: BeginUpload, now: Moment
    ) -> MultipartUpload | BucketNotFound | LimitReached | InvalidInput:
        upload = command.upload
        if upload.bucket not in self._buckets and upload.bucket not in RESERVED:
            return BucketNotFound(upload.bucket)
        wrong = bad_key(upload.key)
        if wrong is not None or upload.parts or not upload.id or upload.id in self._uploads:
            return wrong or InvalidInput("a new upload has an id of its own and no parts")
        full = self._uploads.refusal(upload.id, UPLOADS_MAX, "multipart uploads")
        if full is not None:
            return full
        self._uploads.put(upload.id, upload)
        return upload

    @applies(PutUploadPart)
    def put_part(self, command: PutUploadPart, now: Moment) -> ObjectChange | UploadNotFound | InvalidInput:
        upload, part = self._uploads.get(command.upload), command.part
        if upload is None:
            return UploadNotFound(command.upload)
        wrong = self._bad_blobs([part.blob], now)
        if wrong is not None or not 1 <= part.number <= PARTS_PER_OBJECT_MAX:
            return wrong or InvalidInput(f"a part has a number from 1 to {PARTS_PER_OBJECT_MAX}")
        parts = {one.number: one for one in upload.parts}
        replaced = parts.get(part.number)
        parts[part.number] = part
        ordered = tuple(parts[number] for number in sorted(parts))
        self._uploads.put(upload.id, msgspec.structs.replace(upload, parts=ordered))
        self._blobs.add(part.blob)
        freed = () if replaced is None else (replaced.blob,)
        self._blobs.difference_update(freed)
        return ObjectChange(None, freed)

    @applies(CompleteUpload)
    def complete(
        self, command: CompleteUpload, now: Moment
    ) -> (
        ObjectChange
        | UploadNotFound
        | BucketNotFound
        | ObjectNotFound
        | InvalidInput
        | PreconditionFailed
        | LimitReached
    ):
        upload = self._uploads.get(command.upload)
        if upload is None:
            return UploadNotFound(command.upload)
        held = {part.number: part for part in upload.parts}
        if not command.parts or any(number not in held for number in command.parts):
            return InvalidInput("a part of the list was not uploaded")
        if list(command.parts) != sorted(set(command.parts)):
            return InvalidInput("the parts are not in ascending order")
        chosen = [held[number] for number in command.parts]
        version = msgspec.structs.replace(
            command.version,
            size=sum(part.size for part in chosen),
            blobs=tuple((part.blob, part.size) for part in chosen),
            headers=upload.headers,
        )
        stored = self._put(upload.bucket, upload.key, version, command.condition)
        if not isinstance(stored, ObjectChange):
            return stored
        self._uploads.pop(upload.id)
        kept = {part.blob for part in chosen}
        left = tuple(part.blob for part in upload.parts if part.blob not in kept)
        self._blobs.difference_update(left)
        return ObjectChange(stored.version, (*stored.freed, *left))

    @applies(EndUpload)
    def end(self, command: EndUpload, now: Moment) -> ObjectChange | UploadNotFound:
        upload = self._uploads.pop(command.upload)
        if upload is None:
            return UploadNotFound(command.upload)
        freed = tuple(part.blob for part in upload.parts)
        self._blobs.difference_update(freed)
        return ObjectChange(None, freed)

    # State as a whole

    @property
    def digest(self) -> int:
        return self._buckets.digest ^ self._objects.digest ^ self._uploads.digest

    def encode(self) -> BucketStates:
        return BucketStates(list(self._buckets), list(self._objects), list(self._uploads))

    def load(self, state: BucketStates) -> None:
        for bucket in state.buckets:
            self._buckets.put(bucket.name, bucket)
        for history in state.objects:
            self._objects.put((history.bucket, history.key), history)
            self._keys.setdefault(history.bucket, []).append(history.key)
            self._blobs.update(_blobs_of(history.versions))
        for keys in self._keys.values():
            keys.sort()
        for upload in state.uploads:
            self._uploads.put(upload.id, upload)
            self._blobs.update(part.blob for part in upload.parts)


def started_ms(blob: str) -> int:
    """Ledger time at which the upload of a blob began."""
    return int(blob[:BLOB_TIME_DIGITS], 16)


def bad_key(key: str) -> InvalidInput | None:
    if not key or len(key.encode("utf-8", "surrogatepass")) > BUCKET_KEY_BYTES_MAX:
        return InvalidInput(f"the key of an object has 1 to {BUCKET_KEY_BYTES_MAX} bytes")
    return None


def _blobs_of(
    versions: Iterator[ObjectVersion] | tuple[ObjectVersion, ...] | list[ObjectVersion],
) -> tuple[str, ...]:
    return tuple(id for version in versions for id, _ in version.blobs)
