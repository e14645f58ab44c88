"""Operations on objects: get, put, copy, delete."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from urllib.parse import parse_qs, unquote

from mainstem.api.access import Operation
from mainstem.broker.buckets.service import ObjectVersion
from mainstem.broker.buckets.service import check_key as check_object_key
from mainstem.broker.buckets.table_files import BUCKET as TABLES
from mainstem.doors.s3.bodies import OBJECT_BYTES_MAX, S3Body
from mainstem.doors.s3.conditions import NotModified, asked_range, check_conditions, write_condition
from mainstem.doors.s3.errors import S3Error, invalid_argument, not_implemented
from mainstem.doors.s3.messages import Element, document, http_time, iso_time, owner
from mainstem.doors.s3.requests import S3Request, S3Response
from mainstem.errors import ObjectNotFound

METADATA_BYTES_MAX = 2 * 1024
PARTS_PAGE_MAX = 1000  # of the parts of an object that one answer lists
_META = "x-amz-meta-"
_KEPT = (
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
)
_OVERRIDES = {f"response-{name}": name for name in _KEPT}
_NOT_OFFERED = {
    "x-amz-server-side-encryption": "encryption of objects",
    "x-amz-server-side-encryption-customer-algorithm": "encryption of objects",
    "x-amz-tagging": "tags of objects",
    "x-amz-object-lock-mode": "object lock",
    "x-amz-object-lock-legal-hold": "object lock",
    "x-amz-website-redirect-location": "web sites",
}
# Every object is stored as STANDARD; clients may ask for any class that Amazon has.
_STORAGE_CLASSES = frozenset(
    (
        *("STANDARD", "REDUCED_REDUNDANCY", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER"),
        *("DEEP_ARCHIVE", "OUTPOSTS", "GLACIER_IR", "SNOW", "EXPRESS_ONEZONE", "FSX_OPENZFS", "FSX_ONTAP"),
    )
)
_ACLS = ("", "private", "bucket-owner-full-control", "bucket-owner-read")


async def get_object(request: S3Request) -> S3Response:
    """The object, or a range of it; for HEAD without the bytes."""
    query = request.query
    if "acl" in query:
        return await _get_acl(request)
    if "tagging" in query:
        await _found(request)
        tags = document(Element("Tagging", Element("TagSet")))
        return S3Response(200, tags, [("content-type", "application/xml")])
    for name in ("torrent", "retention", "legal-hold", "select"):
        if name in query:
            raise not_implemented(f"?{name} of an object")
    version = await _found(request)
    headers = _described(version)
    try:
        check_conditions(version, request.headers)
    except NotModified:
        return S3Response(304, headers=[pair for pair in headers if pair[0] in ("etag", "last-modified")])
    if "attributes" in query:
        return _attributes(request, version)
    headers += _kept_headers(request, version)
    start, length, status = 0, version.size, 200
    part = query.get("partNumber")
    if part is not None:
        start, length = _part_range(version, part)
        headers.append(("x-amz-mp-parts-count", str(len(version.blobs))))
        status = 206
    found = asked_range(request.headers.get("range"), version.size)
    if found is not None:
        start, length = found
        status = 206
    if status == 206:
        headers.append(("content-range", f"bytes {start}-{start + length - 1}/{version.size}"))
    if request.method == "HEAD" or not length:
        return S3Response(status, headers=headers, length=length)
    content = await request.content(request.bucket, request.key, version, start, length)
    if isinstance(content, bytes):
        return S3Response(status, content, headers)
    return S3Response(status, headers=headers, length=length, spans=content)


async def _found(request: S3Request) -> ObjectVersion:
    """Raises S3Error, ObjectNotFound."""
    id = request.query.get("versionId", "")
    try:
        version = await request.find(request.bucket, request.key, id)
    except ObjectNotFound:
        if id:
            raise S3Error(404, "NoSuchVersion", "the object has no such version") from None
        raise
    if version.marker:
        headers = (("x-amz-delete-marker", "true"), ("x-amz-version-id", version.id))
        if id:
            raise S3Error(405, "MethodNotAllowed", "a delete marker has no content", headers)
        raise S3Error(404, "NoSuchKey", f"the bucket has no object {request.key[:200]!r}", headers)
    return version


def _described(version: ObjectVersion) -> list[tuple[str, str]]:
    headers = [
        ("etag", f'"{version.etag}"'),
        ("last-modified", http_time(version.modified_ms)),
        ("accept-ranges", "bytes"),
    ]
    if version.id != "null":
        headers.append(("x-amz-version-id", version.id))
    return headers


def _kept_headers(request: S3Request, version: ObjectVersion) -> list[tuple[str, str]]:
    kept = dict(version.headers)
    kept.setdefault("content-type", "binary/octet-stream")
    for asked, name in _OVERRIDES.items():
        if asked in request.query:
            kept[name] = _header_value(request.query[asked])
    algorithm, _, value = version.checksum.partition("=")
    if (
        value
        and request.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED"
        and "range" not in request.headers
        and not ("partNumber" in request.query and len(version.blobs) > 1)  # clients check the part with it
    ):
        kept[f"x-amz-checksum-{algorithm.lower()}"] = value
        kept["x-amz-checksum-type"] = "COMPOSITE" if "-" in value else "FULL_OBJECT"
    return list(kept.items())


def _part_range(version: ObjectVersion, number: str) -> tuple[int, int]:
    if not number.isdecimal() or not 1 <= int(number[:9]) <= 10_000:
        raise invalid_argument("partNumber must be 1 to 10000")
    index = int(number) - 1
    if index >= len(version.blobs) and not (index == 0 and not version.blobs):
        raise S3Error(400, "InvalidPart", "the object has fewer parts")
    sizes = [size for _, size in version.blobs] or [version.size]
    return sum(sizes[:index]), sizes[index]


def _attributes(request: S3Request, version: ObjectVersion) -> S3Response:
    wanted = {one.strip() for one in request.headers.get("x-amz-object-attributes", "").split(",")}
    algorithm, _, value = version.checksum.partition("=")
    kind = Element("ChecksumType", "COMPOSITE" if "-" in value else "FULL_OBJECT")
    checksum = Element("Checksum", Element(f"Checksum{algorithm}", value), kind) if value else None
    rows = {
        "ETag": Element("ETag", version.etag),
        "Checksum": checksum,
        "ObjectParts": _parts(request, version) if "-" in version.etag else None,
        "StorageClass": Element("StorageClass", "STANDARD"),
        "ObjectSize": Element("ObjectSize", version.size),
    }
    if not wanted & set(rows):
        raise invalid_argument("x-amz-object-attributes names none of the attributes")
    content = [element for name, element in rows.items() if name in wanted]
    headers = [("content-type", "application/xml"), ("last-modified", http_time(version.modified_ms))]
    if version.id != "null":
        headers.append(("x-amz-version-id", version.id))
    return S3Response(200, document(Element("GetObjectAttributesResponse", *content)), headers)


def _parts(request: S3Request, version: ObjectVersion) -> Element:
    """The parts of an object that was uploaded in parts."""
    most = min(_whole_header(request, "x-amz-max-parts", PARTS_PAGE_MAX), PARTS_PAGE_MAX)
    after = _whole_header(request, "x-amz-part-number-marker", 0)
    numbered = list(enumerate((size for _, size in version.blobs), 1))
    page = numbered[after : after + most]
    return Element(
        "ObjectParts",
        Element("PartsCount", len(numbered)),
        Element("PartNumberMarker", after),
        Element("NextPartNumberMarker", page[-1][0] if page else after),
        Element("MaxParts", most),
        Element("IsTruncated", after + len(page) < len(numbered)),
        *(Element("Part", Element("PartNumber", number), Element("Size", size)) for number, size in page),
    )


def _whole_header(request: S3Request, name: str, default: int) -> int:
    given = request.headers.get(name, str(default))
    if not given.isdecimal() or len(given) > 6:
        raise invalid_argument(f"{name} must be a whole number")
    return int(given)


async def _get_acl(request: S3Request) -> S3Response:
    await _found(request)
    grant = Element("Grant", owner("Grantee"), Element("Permission", "FULL_CONTROL"))
    body = document(Element("AccessControlPolicy", owner(), Element("AccessControlList", grant)))
    return S3Response(200, body, [("content-type", "application/xml")])


# Writing


async def put_object(request: S3Request) -> S3Response:
    if "acl" in request.query and request.headers.get("x-amz-acl") == "private":
        require_write(request)
        await _found(request)
        return S3Response()
    if request.query.keys() & {"acl", "tagging", "retention", "legal-hold"}:
        raise not_implemented("settings of single objects")
    if "x-amz-copy-source" in request.headers:
        return await copy_object(request)
    require_write(request)
    kept = kept_of(request.headers)
    condition = write_condition(request.headers)
    body = request.body
    body.check_length()
    if request.bucket == TABLES:
        if condition.absent or condition.etag or condition.other:
            raise not_implemented("conditional writes in the bucket tables")
        await request.broker.table_files.put(request.key, body.chunks())
        return S3Response(headers=[("etag", f'"{body.etag}"')])
    blob = await request.broker.buckets.blobs.write(body.chunks())
    version = await request.broker.buckets.put(
        request.bucket,
        request.key,
        blob,
        etag=body.etag,
        headers=kept,
        checksum=body.checksum,
        condition=condition,
    )
    return S3Response(headers=[("etag", f'"{version.etag}"'), *_stored_headers(version)])


def _stored_headers(version: ObjectVersion) -> list[tuple[str, str]]:
    headers = [] if version.id == "null" else [("x-amz-version-id", version.id)]
    algorithm, _, value = version.checksum.partition("=")
    if value:
        headers.append((f"x-amz-checksum-{algorithm.lower()}", value))
    return headers


def require_write(request: S3Request, operation: Operation = Operation.WRITE) -> None:
    """Raises S3Error, BucketNotFound."""
    if request.bucket == TABLES:
        request.require_table_file(Operation.ALTER, request.key)
        return
    request.require(operation, request.find_bucket(request.bucket), request.key)
    check_object_key(request.key)


def kept_of(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The headers that are stored with an object, sorted. Raises S3Error."""
    for name, what in _NOT_OFFERED.items():
        if name in headers:
            raise not_implemented(what)
    if headers.get("x-amz-acl", "") not in _ACLS or any(name.startswith("x-amz-grant-") for name in headers):
        raise S3Error(
            400, "AccessControlListNotSupported", "objects have no ACLs: use the access rules of the server"
        )
    if headers.get("x-amz-storage-class", "STANDARD") not in _STORAGE_CLASSES:
        raise S3Error(400, "InvalidStorageClass", "the storage class is unknown")
    kept = {name: headers[name] for name in _KEPT if name in headers}
    encodings = [one.strip() for one in kept.pop("content-encoding", "").split(",")]
    encoding = ", ".join(one for one in encodings if one and one != "aws-chunked")
    if encoding:
        kept["content-encoding"] = encoding
    meta = {name: value for name, value in headers.items() if name.startswith(_META)}
    if sum(len(name) - len(_META) + len(value) for name, value in meta.items()) > METADATA_BYTES_MAX:
        raise S3Error(
            400, "MetadataTooLarge", f"metadata of an object takes up to {METADATA_BYTES_MAX} bytes"
        )
    return tuple(sorted((kept | meta).items()))


async def copy_object(request: S3Request) -> S3Response:
    require_write(request)
    condition = write_condition(request.headers)
    source = await SourceObject.find(request)
    directive = request.headers.get("x-amz-metadata-directive", "COPY").upper()
    if directive not in ("COPY", "REPLACE"):
        raise invalid_argument("x-amz-metadata-directive must be COPY or REPLACE")
    replaced = kept_of(request.headers)
    same = (source.bucket, source.key) == (request.bucket, request.key) and not source.version_id
    if same and directive == "COPY":
        raise S3Error(400, "InvalidRequest", "a copy onto itself must replace the metadata")
    if source.version.size > OBJECT_BYTES_MAX:
        raise S3Error(400, "InvalidRequest", "a copy takes up to 5 GiB: copy in parts")
    chunks = source.hashed(0, source.version.size)
    kept = source.version.headers if directive == "COPY" else replaced
    if request.bucket == TABLES:
        stored = await request.broker.table_files.put(request.key, chunks)
    else:
        blob = await request.broker.buckets.blobs.write(chunks)
        stored = await request.broker.buckets.put(
            request.bucket,
            request.key,
            blob,
            etag=source.body.etag,
            headers=kept,
            checksum=source.body.checksum,
            condition=condition,
        )
    result = Element(
        "CopyObjectResult",
        Element("LastModified", iso_time(stored.modified_ms)),
        Element("ETag", f'"{stored.etag}"'),
    )
    headers = [("content-type", "application/xml"), *_stored_headers(stored)]
    if source.version.id != "null":
        headers.append(("x-amz-copy-source-version-id", source.version.id))
    return S3Response(200, document(result), headers)


class SourceObject:
    """The object that a request copies from."""

    def __init__(
        self, request: S3Request, bucket: str, key: str, version_id: str, version: ObjectVersion
    ) -> None:
        self._request = request
        self.bucket = bucket
        self.key = key
        self.version_id = version_id
        self.version = version
        self.body: S3Body

    @classmethod
    async def find(cls, request: S3Request) -> SourceObject:
        """Raises S3Error, BucketNotFound, ObjectNotFound."""
        given = request.headers["x-amz-copy-source"].encode("latin-1").decode("utf-8", "replace")
        path, _, query = given.partition("?")
        bucket, _, key = unquote(path).removeprefix("/").partition("/")
        version_id = parse_qs(query).get("versionId", [""])[0]
        if not bucket or not key:
            raise invalid_argument("x-amz-copy-source must be bucket/key")
        version = await request.find(bucket, key, version_id)
        if version.marker:
            raise S3Error(404, "NoSuchKey", "the source of the copy is deleted")
        check_conditions(version, request.headers, "x-amz-copy-source-")
        return cls(request, bucket, key, version_id, version)

    def hashed(self, start: int, length: int) -> AsyncIterator[bytes]:
        """The bytes of a range; `body` has their digests afterwards."""
        chunks = self._request.chunks(self.bucket, self.key, self.version, start, length)

        async def receive() -> dict[str, object]:
            chunk = await anext(chunks, None)
            return {"type": "http.request", "body": chunk or b"", "more_body": chunk is not None}

        algorithm = self.version.checksum.partition("=")[0]
        asked = self._request.headers.get("x-amz-checksum-algorithm", "").upper() or algorithm
        self.body = S3Body(receive, {}, None, False)
        self.body.use(asked)
        return self.body.chunks()


async def delete_object(request: S3Request) -> S3Response:
    require_write(request, Operation.DELETE)
    if request.bucket == TABLES:
        await request.broker.table_files.delete(request.key)
        return S3Response(204)
    deleted = await request.broker.buckets.delete_object(
        request.bucket, request.key, request.query.get("versionId", ""), write_condition(request.headers)
    )
    headers = []
    if deleted.version is not None and (request.query.get("versionId") or deleted.version.marker):
        headers.append(("x-amz-version-id", deleted.version.id))
        if deleted.version.marker:
            headers.append(("x-amz-delete-marker", "true"))
    return S3Response(204, headers=headers)


def _header_value(text: str) -> str:
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise invalid_argument("a header cannot have control characters")
    return text
