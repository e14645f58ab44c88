"""One request: its parts, its principal, and what that may do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote_plus, unquote_to_bytes

from mainstem.api.access import Operation, ResourceType
from mainstem.broker.access.principal import Principal
from mainstem.broker.access.s3_credentials import SessionScope
from mainstem.broker.broker import Broker
from mainstem.broker.buckets.blobs import Span
from mainstem.broker.buckets.service import Bucket, ObjectVersion, Turn
from mainstem.broker.buckets.table_files import BUCKET as TABLES
from mainstem.broker.buckets.table_files import TableOwner
from mainstem.broker.namespaces import qualify
from mainstem.doors.http.transport.responses import Asgi
from mainstem.doors.s3.bodies import S3Body
from mainstem.doors.s3.errors import S3Error, access_denied, invalid_argument
from mainstem.errors import BucketNotFound, ObjectNotFound

_WRITES = (Operation.WRITE, Operation.DELETE, Operation.CREATE, Operation.ALTER)


@dataclass(slots=True)
class S3Response:
    status: int = 200
    body: bytes = b""
    headers: list[tuple[str, str]] = field(default_factory=list)
    length: int | None = None  # of a response to HEAD; else that of the body
    spans: list[Span] | None = None  # the body is in the object store


def parse_query(raw: bytes) -> list[tuple[str, str]]:
    pairs = []
    for part in raw.decode("latin-1").split("&"):
        if part:
            name, _, value = part.partition("=")
            pairs.append((unquote_plus(name), unquote_plus(value)))
    return pairs


def parse_path(raw: bytes) -> tuple[str, str]:
    """Bucket and key; either may be empty. Raises S3Error."""
    bucket, _, key = raw.decode("latin-1").removeprefix("/").partition("/")
    try:
        return unquote_to_bytes(bucket).decode(), unquote_to_bytes(key.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise S3Error(400, "InvalidURI", "bucket and key must be UTF-8") from None


class S3Request:
    def __init__(
        self,
        broker: Broker,
        scope: Asgi,
        headers: Mapping[str, str],
        query: list[tuple[str, str]],
        principal: Principal,
        session: SessionScope | None,
        body: S3Body,
        turn: Turn,
    ) -> None:
        self.broker = broker
        self.turn = turn  # awaited between steps of long work on the event loop
        self.method: str = scope["method"]
        self.bucket, self.key = parse_path(scope["raw_path"])
        self.headers = headers
        self.query = dict(query)
        self.principal = principal
        self.session = session
        self.body = body
        self.host = str((scope.get("client") or ("",))[0])

    # Parameters

    def whole(self, name: str, default: int, most: int) -> int:
        """Raises S3Error."""
        given = self.query.get(name)
        if given is None or given == "":
            return default
        if not given.isdecimal() or len(given) > 9:
            raise invalid_argument(f"{name} must be a whole number from 0 on")
        return min(int(given), most)

    # Rights

    def rule_name(self, bucket: Bucket) -> str:
        """A bucket as access rules name it."""
        return qualify(bucket.namespace, bucket.name) if bucket.namespace else bucket.name

    def find_bucket(self, name: str) -> Bucket:
        """Raises BucketNotFound, also for a bucket of another namespace than the client's."""
        bucket = self.broker.buckets.get(name)
        if self.principal.namespace and bucket.namespace != self.principal.namespace:
            raise BucketNotFound(name)
        return bucket

    def may(self, operation: Operation, bucket: Bucket, key: str = "") -> bool:
        """A rule about the bucket covers the objects in it; one about `bucket/prefix` those below the prefix."""
        if self.session is not None and not self._in_session(operation, bucket.name, key):
            return False
        if self.principal.namespace and bucket.namespace != self.principal.namespace:
            return False
        access, name = self.broker.access, self.rule_name(bucket)
        of_bucket = access.allows(self.principal, self.host, operation, ResourceType.BUCKET, name)
        if not key or access.open_to(self.principal):
            return of_bucket
        names = (name, f"{name}/{key}")
        if any(
            access.denies(self.principal, self.host, operation, ResourceType.BUCKET, one) for one in names
        ):
            return False
        return of_bucket or access.allows(self.principal, self.host, operation, ResourceType.BUCKET, names[1])

    def _in_session(self, operation: Operation, bucket: str, key: str) -> bool:
        if self.session is None:
            return True
        write = operation in _WRITES
        if not key and not write:
            return self.session.shows(f"{bucket}/")
        return self.session.allows(f"{bucket}/{key}", write=write)

    def require(self, operation: Operation, bucket: Bucket, key: str = "") -> None:
        """Raises S3Error 403."""
        if not self.may(operation, bucket, key):
            self.denied(operation, f"{self.rule_name(bucket)}/{key}" if key else self.rule_name(bucket))

    def denied(self, operation: Operation, name: str, kind: str = "bucket") -> None:
        self.broker.audit.record(self.principal, self.host, "s3", operation.name, kind, name, "denied")
        raise access_denied()

    def audit(self, operation: str, name: str) -> None:
        self.broker.audit.record(self.principal, self.host, "s3", operation, "bucket", name, "done")

    # Tables

    def sees_table_file(self, key: str) -> bool:
        owner = self.broker.table_files.owner(key)
        return owner is not None and self._may_table(Operation.READ, owner, key)

    def require_table_file(self, operation: Operation, key: str) -> None:
        """Raises S3Error 403, ObjectNotFound."""
        owner = self.broker.table_files.owner(key)
        if owner is None and self._in_staged_table(operation, key):
            return
        if operation is Operation.READ:
            if owner is None:
                raise ObjectNotFound(key)
        elif owner is None or not owner.writable:
            raise access_denied(
                "the files of topics' tables are read-only: write records to the topic, or create a table of your own"
            )
        if not self._may_table(operation, owner, key):
            self.denied(operation, owner.name, "table")

    def _in_staged_table(self, operation: Operation, key: str) -> bool:
        """Engines write the files of a table that they create from a query before it exists. The catalog gave them
        credentials for its folder, if clients have to authenticate."""
        files = self.broker.table_files
        if not files.may_be_staged(key):
            return False
        if self.session is not None:
            return bool(self.session.prefixes) and self._in_session(operation, TABLES, key)
        return self.broker.access.open_to(self.principal)

    def _may_table(self, operation: Operation, owner: TableOwner, key: str) -> bool:
        if not self._in_session(operation, TABLES, key):
            return False
        if self.principal.namespace and owner.namespace != self.principal.namespace:
            return False
        return self.broker.access.allows(self.principal, self.host, operation, ResourceType.TABLE, owner.name)

    # Objects of either kind

    async def find(self, bucket: str, key: str, version: str = "") -> ObjectVersion:
        """An object that the client may read. Raises S3Error, BucketNotFound, ObjectNotFound."""
        if bucket == TABLES:
            self.require_table_file(Operation.READ, key)
            return await self.broker.table_files.head(key)
        found = self.find_bucket(bucket)
        self.require(Operation.READ, found, key)
        return self.broker.buckets.version(bucket, key, version)

    async def content(
        self, bucket: str, key: str, version: ObjectVersion, start: int, length: int
    ) -> bytes | list[Span]:
        """A range of an object's bytes, or where they are stored."""
        if bucket != TABLES:
            return self.broker.buckets.spans(version, start, length)
        converted = await self.broker.table_files.converted(key)
        if converted is not None:
            return converted[start : start + length]
        return self.broker.table_files.spans(key, start, length)

    async def chunks(
        self, bucket: str, key: str, version: ObjectVersion, start: int, length: int
    ) -> AsyncIterator[bytes]:
        """A range of an object's bytes, in steps."""
        content = await self.content(bucket, key, version, start, length)
        if isinstance(content, bytes):
            yield content
            return
        async for chunk in self.broker.buckets.blobs.chunks(content):
            yield chunk
