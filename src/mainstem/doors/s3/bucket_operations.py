"""Operations on buckets: create, delete, list, versioning."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left
from functools import partial
from operator import itemgetter

from mainstem.api.access import Operation
from mainstem.broker.buckets.service import (
    ENABLED,
    SUSPENDED,
    Bucket,
    ListedObjects,
    ObjectVersion,
    Precondition,
    collapsed,
)
from mainstem.broker.buckets.table_files import BUCKET as TABLES
from mainstem.doors.s3.errors import S3Error, as_s3_error, invalid_argument, malformed_xml, not_implemented
from mainstem.doors.s3.messages import Element, child_text, document, iso_time, owner, parsed, url_encoded
from mainstem.doors.s3.requests import S3Request, S3Response
from mainstem.errors import BucketExists, MainstemError

REGION = "us-east-1"  # any is accepted
PAGE_MAX = 1000
BODY_BYTES_MAX = 64 * 1024
DELETE_BODY_BYTES_MAX = 4 * 1024 * 1024
DELETES_MAX = 1000
_OWN_FILES = Bucket(TABLES, "", 0)

# Settings that a bucket does not have, and what clients expect to hear then.
_UNSET = {
    "policy": "NoSuchBucketPolicy",
    "tagging": "NoSuchTagSet",
    "cors": "NoSuchCORSConfiguration",
    "lifecycle": "NoSuchLifecycleConfiguration",
    "encryption": "ServerSideEncryptionConfigurationNotFoundError",
    "object-lock": "ObjectLockConfigurationNotFoundError",
    "replication": "ReplicationConfigurationNotFoundError",
    "website": "NoSuchWebsiteConfiguration",
    "publicAccessBlock": "NoSuchPublicAccessBlockConfiguration",
    "ownershipControls": "OwnershipControlsNotFoundError",
}
_OTHER_SETTINGS = frozenset(
    {
        "acl",
        "logging",
        "notification",
        "requestPayment",
        "accelerate",
        "analytics",
        "inventory",
        "metrics",
        "policyStatus",
    }
)


async def list_buckets(request: S3Request) -> S3Response:
    shown = [bucket for bucket in request.broker.buckets.all() if request.may(Operation.DESCRIBE, bucket)]
    rows = [(TABLES, 0), *((bucket.name, bucket.created_ms) for bucket in shown)]
    query = request.query
    prefix, after = query.get("prefix", ""), _position(query.get("continuation-token", ""))
    found = sorted(row for row in rows if row[0].startswith(prefix) and row[0] > after)
    most = request.whole("max-buckets", len(found) or 1, 10_000)
    buckets = [
        Element("Bucket", Element("Name", name), Element("CreationDate", iso_time(created)))
        for name, created in found[:most]
    ]
    more = Element("ContinuationToken", _token(found[most - 1][0])) if 0 < most < len(found) else None
    return _xml(Element("ListAllMyBucketsResult", owner(), Element("Buckets", *buckets), more))


async def create_bucket(request: S3Request) -> S3Response:
    namespace = request.principal.namespace
    new = Bucket(request.bucket, namespace, 0)
    request.require(Operation.CREATE, new)
    if request.headers.get("x-amz-bucket-object-lock-enabled", "").lower() == "true":
        raise not_implemented("object lock")
    body = await request.body.read(BODY_BYTES_MAX)
    if body:
        parsed(body, "CreateBucketConfiguration")
    try:
        await request.broker.buckets.create(request.bucket, namespace)
    except BucketExists:
        present = next(
            (one for one in request.broker.buckets.all() if one.name == request.bucket), _OWN_FILES
        )
        if present is _OWN_FILES or not request.may(Operation.CREATE, present):
            raise
        return S3Response(headers=[("location", f"/{request.bucket}")])
    request.audit("CREATE", request.rule_name(new))
    return S3Response(headers=[("location", f"/{request.bucket}")])


async def head_bucket(request: S3Request) -> S3Response:
    _seen(request)
    return S3Response(headers=[("x-amz-bucket-region", REGION)], length=0)


async def delete_bucket(request: S3Request) -> S3Response:
    bucket = _own(request)
    request.require(Operation.DELETE, bucket)
    await request.broker.buckets.delete(bucket.name)
    request.audit("DELETE", request.rule_name(bucket))
    return S3Response(204)


async def get_bucket(request: S3Request) -> S3Response:
    """List the objects of a bucket, or show one of its settings."""
    query = request.query
    bucket = _seen(request)
    if "location" in query:
        return _xml(Element("LocationConstraint"))
    if "versioning" in query:
        state = Element("Status", bucket.versioning) if bucket.versioning else None
        return _xml(Element("VersioningConfiguration", state))
    if "versions" in query:
        return await _list_versions(request, bucket)
    for name, code in _UNSET.items():
        if name in query:
            raise S3Error(404, code, f"the bucket has no {name}")
    for name in _OTHER_SETTINGS:
        if name in query:
            raise not_implemented(f"?{name} of a bucket")
    return await _list_objects(request, bucket)


async def put_bucket(request: S3Request) -> S3Response:
    if "versioning" in request.query:
        return await _set_versioning(request)
    if request.query:
        raise not_implemented(f"?{next(iter(request.query))[:32]} of a bucket")
    return await create_bucket(request)


async def _set_versioning(request: S3Request) -> S3Response:
    bucket = _own(request)
    request.require(Operation.ALTER, bucket)
    asked = parsed(await request.body.read(BODY_BYTES_MAX), "VersioningConfiguration")
    status = child_text(asked, "Status")
    if status not in (ENABLED, SUSPENDED):
        raise malformed_xml("Status must be Enabled or Suspended")
    if child_text(asked, "MfaDelete") == ENABLED:
        raise not_implemented("MFA delete")
    await request.broker.buckets.set_versioning(bucket.name, status)
    request.audit("ALTER", request.rule_name(bucket))
    return S3Response()


async def delete_objects(request: S3Request) -> S3Response:
    """Delete up to 1000 objects."""
    bucket = _own(request)
    body = await request.body.read(DELETE_BODY_BYTES_MAX)
    asked = parsed(body, "Delete")
    quiet = child_text(asked, "Quiet").lower() == "true"
    listed = asked.findall("Object")
    if not 0 < len(listed) <= DELETES_MAX:
        raise malformed_xml(f"a request deletes 1 to {DELETES_MAX} objects")
    rows = []
    for one in listed:
        key, version = one.findtext("Key") or "", one.findtext("VersionId") or ""
        named = [Element("Key", key), Element("VersionId", version) if version else None]
        if not request.may(Operation.DELETE, bucket, key):
            rows.append(
                Element("Error", *named, Element("Code", "AccessDenied"), Element("Message", "Access Denied"))
            )
            continue
        etag = (one.findtext("ETag") or "").strip('"')
        try:
            deleted = await request.broker.buckets.delete_object(
                bucket.name, key, version, Precondition(etag=etag)
            )
        except MainstemError as error:
            failed = as_s3_error(error)
            rows.append(
                Element("Error", *named, Element("Code", failed.code), Element("Message", str(failed)))
            )
            continue
        if not quiet:
            rows.append(Element("Deleted", *named, *_marker(deleted.version)))
    return _xml(Element("DeleteResult", *rows))


def _marker(version: ObjectVersion | None) -> list[Element]:
    if version is None or not version.marker:
        return []
    return [Element("DeleteMarker", True), Element("DeleteMarkerVersionId", version.id)]


# Listing


async def _list_objects(request: S3Request, bucket: Bucket) -> S3Response:
    query = request.query
    second = query.get("list-type") == "2"
    most = request.whole("max-keys", PAGE_MAX, PAGE_MAX)
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    encoding = query.get("encoding-type", "")
    if encoding not in ("", "url"):
        raise invalid_argument("encoding-type must be url")
    after = query.get("start-after" if second else "marker", "")
    if second and "continuation-token" in query:
        after = _position(query["continuation-token"])
    found = await _page(request, bucket, prefix, delimiter, after, most)
    encoded = partial(url_encoded, encoding=encoding)
    rows = [
        Element("Name", bucket.name),
        Element("Prefix", encoded(prefix) if second else prefix),
        Element("MaxKeys", most),
        Element("Delimiter", encoded(delimiter)) if delimiter else None,
        Element("EncodingType", encoding) if encoding else None,
        Element("IsTruncated", bool(found.next) and most > 0),
    ]
    if second:
        rows += [
            Element("KeyCount", len(found.objects) + len(found.prefixes)),
            Element("ContinuationToken", query["continuation-token"])
            if "continuation-token" in query
            else None,
            Element("NextContinuationToken", _token(found.next)) if found.next and most else None,
            Element("StartAfter", encoded(query["start-after"])) if query.get("start-after") else None,
        ]
    else:
        rows.append(Element("Marker", encoded(after)))
        rows.append(Element("NextMarker", encoded(found.next)) if found.next and delimiter else None)
    with_owner = not second or query.get("fetch-owner") == "true"
    rows += [_row("Contents", encoded(key), version, with_owner) for key, version in found.objects]
    rows += [Element("CommonPrefixes", Element("Prefix", encoded(one))) for one in found.prefixes]
    return _xml(Element("ListBucketResult", *rows))


async def _page(
    request: S3Request, bucket: Bucket, prefix: str, delimiter: str, after: str, most: int
) -> ListedObjects:
    if not most:
        return ListedObjects([], [], "")
    if bucket.name != TABLES:
        return await request.broker.buckets.list_objects(
            bucket.name,
            prefix=prefix,
            delimiter=delimiter,
            after=after,
            most=most,
            sees=partial(request.may, Operation.DESCRIBE, bucket),
            turn=request.turn,
        )
    found = [one async for one in request.broker.table_files.list(prefix)]
    return await collapsed(
        lambda start: iter(found[bisect_left(found, start, key=itemgetter(0)) :]),
        prefix,
        delimiter,
        after,
        most,
        request.sees_table_file,
        request.turn,
    )


async def _list_versions(request: S3Request, bucket: Bucket) -> S3Response:
    query = request.query
    if bucket.name == TABLES:
        raise not_implemented("versions of the bucket tables")
    most = request.whole("max-keys", PAGE_MAX, PAGE_MAX)
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    encoded = partial(url_encoded, encoding=query.get("encoding-type", ""))
    marker, version_marker = query.get("key-marker", ""), query.get("version-id-marker", "")
    found = await request.broker.buckets.list_versions(
        bucket.name,
        prefix=prefix,
        delimiter=delimiter,
        after_key=marker,
        after_version=version_marker,
        most=most,
        sees=partial(request.may, Operation.DESCRIBE, bucket),
        turn=request.turn,
    )
    rows = [
        Element("Name", bucket.name),
        Element("Prefix", encoded(prefix)),
        Element("KeyMarker", encoded(marker)),
        Element("VersionIdMarker", version_marker),
        Element("MaxKeys", most),
        Element("Delimiter", encoded(delimiter)) if delimiter else None,
        Element("EncodingType", query["encoding-type"]) if query.get("encoding-type") else None,
        Element("IsTruncated", bool(found.next_key)),
        Element("NextKeyMarker", encoded(found.next_key)) if found.next_key else None,
        Element("NextVersionIdMarker", found.next_version) if found.next_key else None,
    ]
    for key, version, latest in found.versions:
        named = [Element("VersionId", version.id), Element("IsLatest", latest)]
        name = "DeleteMarker" if version.marker else "Version"
        rows.append(_row(name, encoded(key), version, True, named))
    rows += [Element("CommonPrefixes", Element("Prefix", encoded(one))) for one in found.prefixes]
    return _xml(Element("ListVersionsResult", *rows))


def _row(
    name: str, key: str, version: ObjectVersion, with_owner: bool, more: list[Element] | None = None
) -> Element:
    content: list[Element | None] = [
        Element("Key", key),
        *(more or []),
        Element("LastModified", iso_time(version.modified_ms)),
    ]
    if not version.marker:
        content += [
            Element("ETag", f'"{version.etag}"'),
            Element("ChecksumAlgorithm", version.checksum.partition("=")[0]) if version.checksum else None,
            Element("Size", version.size),
            Element("StorageClass", "STANDARD"),
        ]
    return Element(name, *content, owner() if with_owner else None)


def _token(position: str) -> str:
    return base64.urlsafe_b64encode(position.encode()).decode()


def _position(token: str) -> str:
    try:
        return base64.urlsafe_b64decode(token.encode()).decode()
    except (binascii.Error, ValueError):
        raise invalid_argument("the continuation token is malformed") from None


def _seen(request: S3Request) -> Bucket:
    """The bucket of the path, which the client may see. Raises S3Error, BucketNotFound."""
    if request.bucket == TABLES:
        return _OWN_FILES
    bucket = request.find_bucket(request.bucket)
    request.require(Operation.DESCRIBE, bucket)
    return bucket


def _own(request: S3Request) -> Bucket:
    """The bucket of the path, which is a user's. Raises S3Error, BucketNotFound."""
    if request.bucket == TABLES:
        raise S3Error(403, "AccessDenied", "the bucket tables belongs to the server")
    return request.find_bucket(request.bucket)


def _xml(root: Element) -> S3Response:
    return S3Response(200, document(root), [("content-type", "application/xml")])
