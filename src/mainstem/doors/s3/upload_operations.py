"""Multipart uploads: begin, upload and copy parts, list, complete, abort."""

from __future__ import annotations

import base64
import hashlib
from functools import partial

from mainstem.api.access import Operation
from mainstem.broker.buckets.service import MultipartUpload, UploadPart
from mainstem.broker.buckets.table_files import BUCKET as TABLES
from mainstem.doors.s3.bodies import ALGORITHMS, JOINABLE, OBJECT_BYTES_MAX, new_hash
from mainstem.doors.s3.conditions import asked_range, unsatisfiable, write_condition
from mainstem.doors.s3.errors import S3Error, invalid_argument, malformed_xml
from mainstem.doors.s3.messages import Element, child_text, document, iso_time, owner, parsed, url_encoded
from mainstem.doors.s3.object_operations import SourceObject, kept_of, require_write
from mainstem.doors.s3.requests import S3Request, S3Response
from mainstem.errors import ObjectNotFound, UploadNotFound
from mainstem.records.crc64 import joined_crc

PART_BYTES_MIN = 5 * 1024 * 1024  # of every part but the last
PARTS_MAX = 10_000
FULL_OBJECT, COMPOSITE = "FULL_OBJECT", "COMPOSITE"  # what the checksum of a multipart object is of
COMPLETE_BODY_BYTES_MAX = 4 * 1024 * 1024
_PAGE_MAX = 1000


async def begin_upload(request: S3Request) -> S3Response:
    require_write(request)
    algorithm = request.headers.get("x-amz-checksum-algorithm", "").upper()
    if algorithm:
        new_hash(algorithm)
    kind = request.headers.get("x-amz-checksum-type", "").upper()
    if algorithm == "CRC64NVME":
        kind = kind or FULL_OBJECT
    if kind == FULL_OBJECT and algorithm not in JOINABLE:
        raise S3Error(400, "InvalidRequest", f"{algorithm or 'no checksum'} cannot be of the full object")
    if kind == COMPOSITE and algorithm == "CRC64NVME":
        raise S3Error(400, "InvalidRequest", "CRC64NVME is of the full object")
    upload = await request.broker.buckets.begin_upload(
        request.bucket,
        request.key,
        headers=kept_of(request.headers),
        algorithm=f"{algorithm}/{FULL_OBJECT}" if kind == FULL_OBJECT else algorithm,
        principal=request.principal.name,
    )
    result = Element(
        "InitiateMultipartUploadResult",
        Element("Bucket", upload.bucket),
        Element("Key", upload.key),
        Element("UploadId", upload.id),
    )
    headers = [("content-type", "application/xml")]
    if algorithm:
        headers += [("x-amz-checksum-algorithm", algorithm), ("x-amz-checksum-type", kind or COMPOSITE)]
    return S3Response(200, document(result), headers)


async def put_part(request: S3Request) -> S3Response:
    upload = _upload(request)
    number = request.query.get("partNumber", "")
    if not number.isdecimal() or len(number) > 6 or not 1 <= int(number) <= PARTS_MAX:
        raise invalid_argument(f"partNumber must be 1 to {PARTS_MAX}")
    if "x-amz-copy-source" in request.headers:
        return await _copy_part(request, upload, int(number))
    body = request.body
    body.check_length()
    body.use(upload.algorithm.partition("/")[0])
    blob = await request.broker.buckets.blobs.write(body.chunks())
    part = await request.broker.buckets.put_part(upload.id, int(number), blob, body.etag, body.checksum)
    return S3Response(headers=[("etag", f'"{part.etag}"'), *_checksum_headers(part)])


async def _copy_part(request: S3Request, upload: MultipartUpload, number: int) -> S3Response:
    source = await SourceObject.find(request)
    asked = request.headers.get("x-amz-copy-source-range")
    start, length = 0, source.version.size
    if asked is not None:
        found = asked_range(asked, length)
        end = asked.rpartition("-")[2]
        if found is None or not end.isdecimal():
            raise invalid_argument("x-amz-copy-source-range must be bytes=FIRST-LAST")
        if int(end) >= length:
            raise unsatisfiable(length)
        start, length = found
    if length > OBJECT_BYTES_MAX:
        raise S3Error(400, "InvalidRequest", "a part has up to 5 GiB")
    chunks = source.hashed(start, length)
    source.body.use(upload.algorithm.partition("/")[0])
    blob = await request.broker.buckets.blobs.write(chunks)
    part = await request.broker.buckets.put_part(
        upload.id, number, blob, source.body.etag, source.body.checksum
    )
    result = Element(
        "CopyPartResult",
        Element("LastModified", iso_time(part.modified_ms)),
        Element("ETag", f'"{part.etag}"'),
    )
    return S3Response(200, document(result), [("content-type", "application/xml")])


async def complete_upload(request: S3Request) -> S3Response:
    require_write(request)
    condition = write_condition(request.headers)
    asked = parsed(await request.body.read(COMPLETE_BODY_BYTES_MAX), "CompleteMultipartUpload")
    listed = [(child_text(one, "PartNumber"), child_text(one, "ETag")) for one in asked.findall("Part")]
    try:
        upload = _upload(request)
    except UploadNotFound:
        return _completed(request, listed)
    chosen = _chosen(upload, listed)
    etag = _joint_etag([part.etag for part in chosen])
    checksum = _composite(upload, chosen)
    given = request.headers.get(f"x-amz-checksum-{checksum.partition('=')[0].lower()}")
    if given is not None and given.partition("-")[0] != checksum.partition("=")[2].partition("-")[0]:
        raise S3Error(400, "BadDigest", "the object does not have the checksum that the request declares")
    headers = [("content-type", "application/xml")]
    if upload.bucket == TABLES:
        await request.broker.table_files.put(upload.key, request.broker.buckets.part_chunks(chosen))
        await request.broker.buckets.end_upload(upload.id)
    else:
        version = await request.broker.buckets.complete_upload(
            upload, [part.number for part in chosen], etag=etag, checksum=checksum, condition=condition
        )
        if version.id != "null":
            headers.append(("x-amz-version-id", version.id))
    return S3Response(200, _result(request, etag, checksum), headers)


def _completed(request: S3Request, listed: list[tuple[str, str]]) -> S3Response:
    """The answer to a client that repeats its request, because it did not get the first answer."""
    id = request.query.get("uploadId", "")
    if request.bucket == TABLES or not listed:
        raise UploadNotFound(id)
    try:
        etag = _joint_etag([etag.strip('"') for _, etag in listed])
        version = request.broker.buckets.version(request.bucket, request.key)
    except (ValueError, ObjectNotFound):
        raise UploadNotFound(id) from None
    if version.etag != etag:
        raise UploadNotFound(id)
    return S3Response(200, _result(request, etag, version.checksum), [("content-type", "application/xml")])


def _joint_etag(etags: list[str]) -> str:
    digests = b"".join(bytes.fromhex(etag) for etag in etags)
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(etags)}"


def _result(request: S3Request, etag: str, checksum: str) -> bytes:
    algorithm, _, value = checksum.partition("=")
    return document(
        Element(
            "CompleteMultipartUploadResult",
            Element("Location", f"/{request.bucket}/{request.key}"),
            Element("Bucket", request.bucket),
            Element("Key", request.key),
            Element("ETag", f'"{etag}"'),
            Element(f"Checksum{algorithm}", value) if value else None,
            Element("ChecksumType", COMPOSITE if "-" in value else FULL_OBJECT) if value else None,
        )
    )


def _chosen(upload: MultipartUpload, asked: list[tuple[str, str]]) -> list[UploadPart]:
    """The parts that the client lists. Raises S3Error."""
    if not asked or not all(number.isdecimal() and len(number) < 9 for number, _ in asked):
        raise malformed_xml("list the parts of the upload")
    numbers = [int(number) for number, _ in asked]
    if numbers != sorted(numbers):
        raise S3Error(400, "InvalidPartOrder", "list the parts in ascending order")
    held = {part.number: part for part in upload.parts}
    chosen = []
    # A client that uploaded a part twice may list it twice: the last one counts.
    for number, etag in {int(number): etag for number, etag in asked}.items():
        part = held.get(number)
        if part is None or etag.strip('"') != part.etag:
            raise S3Error(400, "InvalidPart", f"part {number} was not uploaded, or has another ETag")
        chosen.append(part)
    if any(part.size < PART_BYTES_MIN for part in chosen[:-1]):
        raise S3Error(400, "EntityTooSmall", "every part but the last has at least 5 MiB")
    return chosen


def _composite(upload: MultipartUpload, parts: list[UploadPart]) -> str:
    """The checksum of the checksums of the parts, or of the full object."""
    algorithm, _, kind = upload.algorithm.partition("/")
    if algorithm not in ALGORITHMS:
        return ""
    if kind == FULL_OBJECT:
        return _joined(algorithm, parts)
    total = new_hash(algorithm)
    for part in parts:
        given, _, value = part.checksum.partition("=")
        if given != algorithm:
            return ""
        total.update(base64.b64decode(value))
    return f"{algorithm}={base64.b64encode(total.digest()).decode()}-{len(parts)}"


def _joined(algorithm: str, parts: list[UploadPart]) -> str:
    polynomial, bits = JOINABLE[algorithm]
    total = 0
    for part in parts:
        given, _, value = part.checksum.partition("=")
        if given != algorithm:
            return ""
        checksum = int.from_bytes(base64.b64decode(value), "big")
        total = joined_crc(total, checksum, part.size, polynomial, bits)
    return f"{algorithm}={base64.b64encode(total.to_bytes(bits // 8, 'big')).decode()}"


async def abort_upload(request: S3Request) -> S3Response:
    await request.broker.buckets.end_upload(_upload(request).id)
    return S3Response(204)


async def list_parts(request: S3Request) -> S3Response:
    upload = _upload(request)
    after = request.whole("part-number-marker", 0, PARTS_MAX)
    most = request.whole("max-parts", _PAGE_MAX, _PAGE_MAX)
    left = [part for part in upload.parts if part.number > after]
    page = left[:most]
    encoded = partial(url_encoded, encoding=request.query.get("encoding-type", ""))
    rows = [
        Element("Bucket", upload.bucket),
        Element("Key", encoded(upload.key)),
        Element("UploadId", upload.id),
        owner("Initiator"),
        owner(),
        Element("StorageClass", "STANDARD"),
        Element("PartNumberMarker", after),
        Element("NextPartNumberMarker", page[-1].number if page else 0),
        Element("MaxParts", most),
        Element("IsTruncated", len(left) > len(page)),
        Element("ChecksumAlgorithm", upload.algorithm.partition("/")[0]) if upload.algorithm else None,
    ]
    for part in page:
        algorithm, _, value = part.checksum.partition("=")
        rows.append(
            Element(
                "Part",
                Element("PartNumber", part.number),
                Element("LastModified", iso_time(part.modified_ms)),
                Element("ETag", f'"{part.etag}"'),
                Element("Size", part.size),
                Element(f"Checksum{algorithm}", value) if value else None,
            )
        )
    return S3Response(200, document(Element("ListPartsResult", *rows)), [("content-type", "application/xml")])


async def list_uploads(request: S3Request) -> S3Response:
    if request.bucket == TABLES:
        sees = request.sees_table_file
    else:
        sees = partial(request.may, Operation.DESCRIBE, request.find_bucket(request.bucket))
    query = request.query
    prefix, marker = query.get("prefix", ""), query.get("key-marker", "")
    id_marker, delimiter = query.get("upload-id-marker", ""), query.get("delimiter", "")
    most = request.whole("max-uploads", _PAGE_MAX, _PAGE_MAX)
    encoded = partial(url_encoded, encoding=query.get("encoding-type", ""))
    found = [
        upload
        for upload in request.broker.buckets.uploads(request.bucket)
        if upload.key.startswith(prefix) and sees(upload.key) and upload.key >= marker
    ]
    if id_marker:
        at = next((number for number, one in enumerate(found) if one.id == id_marker), -1)
        found = found[at + 1 :]
    elif marker:
        found = [upload for upload in found if upload.key > marker]
    prefixes: dict[str, None] = {}
    shown = []
    for upload in found:
        end = upload.key.find(delimiter, len(prefix)) if delimiter else -1
        if end >= 0:
            prefixes[upload.key[: end + len(delimiter)]] = None
        else:
            shown.append(upload)
    page = shown[:most]
    rows = [
        Element("Bucket", request.bucket),
        Element("Prefix", encoded(prefix)),
        Element("KeyMarker", encoded(marker)),
        Element("UploadIdMarker", id_marker),
        Element("MaxUploads", most),
        Element("IsTruncated", len(shown) > len(page)),
        Element("NextKeyMarker", encoded(page[-1].key)) if page else None,
        Element("NextUploadIdMarker", page[-1].id) if page else None,
        *(
            Element(
                "Upload",
                Element("Key", encoded(upload.key)),
                Element("UploadId", upload.id),
                owner("Initiator"),
                owner(),
                Element("StorageClass", "STANDARD"),
                Element("Initiated", iso_time(upload.started_ms)),
            )
            for upload in page
        ),
        *(Element("CommonPrefixes", Element("Prefix", encoded(one))) for one in prefixes),
    ]
    return S3Response(
        200, document(Element("ListMultipartUploadsResult", *rows)), [("content-type", "application/xml")]
    )


def _upload(request: S3Request) -> MultipartUpload:
    """The upload that the request names, which the client may write to. Raises S3Error, UploadNotFound."""
    require_write(request)
    return request.broker.buckets.upload(request.bucket, request.key, request.query.get("uploadId", ""))


def _checksum_headers(part: UploadPart) -> list[tuple[str, str]]:
    algorithm, _, value = part.checksum.partition("=")
    return [(f"x-amz-checksum-{algorithm.lower()}", value)] if value else []
