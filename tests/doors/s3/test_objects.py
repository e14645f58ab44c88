"""Objects, as boto3 stores and reads them."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import socket
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError

from mainstem.testing.server import ServerProcess

from .conftest import code, expect


def test_an_object_comes_back_with_its_metadata(s3: Any, bucket: str) -> None:
    put = s3.put_object(
        Bucket=bucket, Key="a/b c+d ü.txt", Body=b"hello", Metadata={"who": "me"}, ContentType="text/plain"
    )
    found = s3.get_object(Bucket=bucket, Key="a/b c+d ü.txt")
    assert found["Body"].read() == b"hello"
    assert found["Metadata"] == {"who": "me"}
    assert found["ContentType"] == "text/plain"
    assert put["ETag"] == found["ETag"] == f'"{hashlib.md5(b"hello").hexdigest()}"'
    assert s3.head_object(Bucket=bucket, Key="a/b c+d ü.txt")["ContentLength"] == 5


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ("bytes=0-0", b"0"),
        ("bytes=2-4", b"234"),
        ("bytes=7-", b"789"),
        ("bytes=-3", b"789"),
        ("bytes=5-99", b"56789"),
    ],
)
def test_ranges(s3: Any, bucket: str, asked: str, part: bytes) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789")
    found = s3.get_object(Bucket=bucket, Key="k", Range=asked)
    assert (found["Body"].read(), found["ResponseMetadata"]["HTTPStatusCode"]) == (part, 206)
    assert found["ContentRange"].endswith("/10")


def test_an_encoding_that_names_no_framing_is_not_kept(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", ContentEncoding="gzip, aws-chunked")
    assert s3.head_object(Bucket=bucket, Key="k")["ContentEncoding"] == "gzip"


def test_a_range_behind_the_end_is_refused(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789")
    with pytest.raises(ClientError) as refused:
        s3.get_object(Bucket=bucket, Key="k", Range="bytes=10-")
    assert code(refused) == "InvalidRange"


def test_reads_can_depend_on_what_the_client_has(s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"x")["ETag"]
    for condition, expected in (
        ({"IfMatch": '"other"'}, "PreconditionFailed"),
        ({"IfNoneMatch": etag}, "304"),
        ({"IfModifiedSince": 4e9}, "304"),
        ({"IfUnmodifiedSince": 1e9}, "PreconditionFailed"),
    ):
        with pytest.raises(ClientError) as refused:
            s3.get_object(Bucket=bucket, Key="k", **condition)
        assert code(refused) == expected
    assert s3.get_object(Bucket=bucket, Key="k", IfMatch=etag)["Body"].read() == b"x"


def test_writes_can_depend_on_the_object(s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"1", IfNoneMatch="*")["ETag"]
    with pytest.raises(ClientError) as taken:
        s3.put_object(Bucket=bucket, Key="k", Body=b"2", IfNoneMatch="*")
    assert code(taken) == "PreconditionFailed"
    s3.put_object(Bucket=bucket, Key="k", Body=b"3", IfMatch=etag)
    with pytest.raises(ClientError) as stale:
        s3.put_object(Bucket=bucket, Key="k", Body=b"4", IfMatch=etag)
    assert code(stale) == "PreconditionFailed"
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"3"


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "SHA1", "SHA256"])
def test_checksums_are_checked_and_kept(s3: Any, bucket: str, algorithm: str) -> None:
    if algorithm == "CRC32C":
        import crc32c

        value = crc32c.crc32c(b"hello").to_bytes(4, "big")
        put = s3.put_object(
            Bucket=bucket, Key="k", Body=b"hello", ChecksumCRC32C=base64.b64encode(value).decode()
        )
    else:
        put = s3.put_object(Bucket=bucket, Key="k", Body=b"hello", ChecksumAlgorithm=algorithm)
    name = f"Checksum{algorithm}"
    assert s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")[name] == put[name]
    with pytest.raises(ClientError) as wrong:
        s3.put_object(Bucket=bucket, Key="bad", Body=b"hello", **{name: base64.b64encode(bytes(4)).decode()})
    assert code(wrong) in ("BadDigest", "InvalidRequest")
    with pytest.raises(ClientError):
        s3.head_object(Bucket=bucket, Key="bad")


def test_a_wrong_md5_stores_nothing(server: ServerProcess, s3: Any, bucket: str) -> None:
    url = f"http://{server.address('s3')}/{bucket}/k"
    answer = httpx.put(url, content=b"hello", headers={"content-md5": base64.b64encode(bytes(16)).decode()})
    assert (answer.status_code, "BadDigest" in answer.text) == (400, True)
    assert httpx.get(url).status_code == 404


def test_an_upload_that_is_cut_off_stores_nothing(server: ServerProcess, s3: Any, bucket: str) -> None:
    address = server.address("s3")
    with socket.create_connection((address.host, address.port)) as connection:
        head = f"PUT /{bucket}/k HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3000000\r\n\r\n"
        connection.sendall(head.encode() + b"x" * 2_000_000)
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def test_copies(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="from", Body=b"bytes", Metadata={"a": "1"})
    source = {"Bucket": bucket, "Key": "from"}
    s3.copy_object(Bucket=bucket, Key="same", CopySource=source)
    s3.copy_object(
        Bucket=bucket, Key="other", CopySource=source, MetadataDirective="REPLACE", Metadata={"b": "2"}
    )
    same, other = (s3.get_object(Bucket=bucket, Key=key) for key in ("same", "other"))
    assert (same["Body"].read(), same["Metadata"]) == (b"bytes", {"a": "1"})
    assert (other["Body"].read(), other["Metadata"]) == (b"bytes", {"b": "2"})
    with pytest.raises(ClientError) as itself:
        s3.copy_object(Bucket=bucket, Key="from", CopySource=source)
    assert code(itself) == "InvalidRequest"


def test_multipart_uploads(s3: Any, bucket: str) -> None:
    first, last = os.urandom(5 << 20), os.urandom(1234)
    id = s3.create_multipart_upload(Bucket=bucket, Key="big", Metadata={"m": "1"})["UploadId"]
    assert [one["UploadId"] for one in s3.list_multipart_uploads(Bucket=bucket)["Uploads"]] == [id]
    replaced = s3.upload_part(Bucket=bucket, Key="big", UploadId=id, PartNumber=2, Body=b"replaced")["ETag"]
    s3.put_object(Bucket=bucket, Key="source", Body=b"..." + last + b"...")
    copied = s3.upload_part_copy(
        Bucket=bucket,
        Key="big",
        UploadId=id,
        PartNumber=2,
        CopySource={"Bucket": bucket, "Key": "source"},
        CopySourceRange=f"bytes=3-{len(last) + 2}",
    )["CopyPartResult"]["ETag"]
    uploaded = s3.upload_part(Bucket=bucket, Key="big", UploadId=id, PartNumber=1, Body=first)["ETag"]
    listed = s3.list_parts(Bucket=bucket, Key="big", UploadId=id)["Parts"]
    assert [(part["PartNumber"], part["Size"]) for part in listed] == [(1, len(first)), (2, len(last))]
    with pytest.raises(ClientError) as early:
        s3.delete_bucket(Bucket=bucket)
    assert code(early) == "BucketNotEmpty"
    etags = ((1, uploaded), (2, replaced), (2, copied))  # of a part that is listed twice, the last one counts
    parts = [{"PartNumber": number, "ETag": etag} for number, etag in etags]
    s3.complete_multipart_upload(Bucket=bucket, Key="big", UploadId=id, MultipartUpload={"Parts": parts})
    found = s3.get_object(Bucket=bucket, Key="big")
    assert found["Body"].read() == first + last
    assert found["Metadata"] == {"m": "1"}
    assert found["ETag"].endswith('-2"')
    across = f"bytes={len(first) - 2}-{len(first) + 1}"
    assert s3.get_object(Bucket=bucket, Key="big", Range=across)["Body"].read() == first[-2:] + last[:2]
    assert s3.get_object(Bucket=bucket, Key="big", PartNumber=2)["Body"].read() == last
    described = s3.get_object_attributes(
        Bucket=bucket, Key="big", ObjectAttributes=["ObjectParts"], MaxParts=1, PartNumberMarker=1
    )["ObjectParts"]
    assert described["Parts"] == [{"PartNumber": 2, "Size": len(last)}]
    assert (described["TotalPartsCount"], described["IsTruncated"]) == (2, False)


@pytest.mark.parametrize("kind", ["FULL_OBJECT", "COMPOSITE"])
def test_a_part_comes_without_the_checksum_of_the_object(s3: Any, bucket: str, kind: str) -> None:
    """boto3 checks what it receives with the checksum of the response."""
    first, last = os.urandom(5 << 20), os.urandom(99)
    names = {"Bucket": bucket, "Key": "big"}
    id = s3.create_multipart_upload(**names, ChecksumAlgorithm="CRC32", ChecksumType=kind)["UploadId"]
    parts = []
    for number, content in enumerate((first, last), 1):
        stored = s3.upload_part(
            **names, UploadId=id, PartNumber=number, Body=content, ChecksumAlgorithm="CRC32"
        )
        parts.append({"PartNumber": number, "ETag": stored["ETag"], "ChecksumCRC32": stored["ChecksumCRC32"]})
    s3.complete_multipart_upload(**names, UploadId=id, MultipartUpload={"Parts": parts})
    for number, content in enumerate((first, last), 1):
        found = s3.get_object(**names, PartNumber=number, ChecksumMode="ENABLED")
        assert found["Body"].read() == content
        assert "ChecksumCRC32" not in found
    whole = s3.get_object(**names, ChecksumMode="ENABLED")
    assert (whole["ChecksumType"], whole["Body"].read() == first + last) == (kind, True)


def test_storage_classes_are_those_of_amazon(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", StorageClass="STANDARD_IA")
    expect(
        "InvalidStorageClass",
        lambda: s3.put_object(Bucket=bucket, Key="k", StorageClass="CHEAP"),
        lambda: s3.create_multipart_upload(Bucket=bucket, Key="k", StorageClass="CHEAP"),
    )


def test_an_aborted_upload_is_gone(s3: Any, bucket: str) -> None:
    id = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    s3.upload_part(Bucket=bucket, Key="k", UploadId=id, PartNumber=1, Body=b"x")
    s3.abort_multipart_upload(Bucket=bucket, Key="k", UploadId=id)
    with pytest.raises(ClientError) as gone:
        s3.upload_part(Bucket=bucket, Key="k", UploadId=id, PartNumber=2, Body=b"x")
    assert code(gone) == "NoSuchUpload"
    s3.delete_bucket(Bucket=bucket)


def test_large_files_by_boto3s_transfer_manager(s3: Any, bucket: str) -> None:
    content = os.urandom(20 << 20)
    s3.upload_fileobj(io.BytesIO(content), bucket, "large")
    into = io.BytesIO()
    s3.download_fileobj(bucket, "large", into)
    assert into.getvalue() == content


def test_versions_and_delete_markers(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"0")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    one = s3.put_object(Bucket=bucket, Key="k", Body=b"1")["VersionId"]
    two = s3.put_object(Bucket=bucket, Key="k", Body=b"2")["VersionId"]
    marker = s3.delete_object(Bucket=bucket, Key="k")
    assert marker["DeleteMarker"] is True
    with pytest.raises(ClientError) as hidden:
        s3.get_object(Bucket=bucket, Key="k")
    assert code(hidden) == "NoSuchKey"
    for id, content in ((one, b"1"), (two, b"2"), ("null", b"0")):
        assert s3.get_object(Bucket=bucket, Key="k", VersionId=id)["Body"].read() == content
    listed = s3.list_object_versions(Bucket=bucket)
    assert [each["VersionId"] for each in listed["Versions"]] == [two, one, "null"]
    assert [each["IsLatest"] for each in listed["DeleteMarkers"]] == [True]
    s3.delete_object(Bucket=bucket, Key="k", VersionId=marker["VersionId"])
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"2"
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    s3.put_object(Bucket=bucket, Key="k", Body=b"3")
    listed = s3.list_object_versions(Bucket=bucket)["Versions"]
    assert [each["VersionId"] for each in listed] == ["null", two, one]


def test_many_deletes_in_one_request(s3: Any, bucket: str) -> None:
    for key in ("a", "b", "c"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    objects = [{"Key": key} for key in ("a", "c", "never")]
    deleted = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects})["Deleted"]
    assert [one["Key"] for one in deleted] == ["a", "c", "never"]
    assert [one["Key"] for one in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["b"]


@pytest.mark.parametrize("name", ["ab", "UPPER", "a_b", "a..b", "1.2.3.4", "-a-", "tables"])
def test_bad_bucket_names_are_refused(server: ServerProcess, name: str) -> None:
    assert httpx.put(f"http://{server.address('s3')}/{name}").status_code in (400, 409)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<Delete>",
        b"<Other/>",
        b'<!DOCTYPE a [<!ENTITY b "c">]><Delete><Object><Key>&b;</Key></Object></Delete>',
        b"<Delete></Delete>",
        '<!DOCTYPE a [<!ENTITY b "c">]><Delete><Object><Key>&b;</Key></Object></Delete>'.encode("utf-16"),
        '<?xml version="1.0" encoding="cp037"?><!DOCTYPE a [<!ENTITY b "c">]><Delete/>'.encode("cp037"),
    ],
)
def test_malformed_bodies_are_refused(server: ServerProcess, bucket: str, body: bytes) -> None:
    answer = httpx.post(f"http://{server.address('s3')}/{bucket}?delete", content=body)
    assert (answer.status_code, "MalformedXML" in answer.text) == (400, True)


def test_a_page_of_another_site_changes_nothing(server: ServerProcess, s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    body = b"<Delete><Object><Key>k</Key></Object></Delete>"
    headers = {"origin": "http://evil.example", "content-type": "text/plain"}
    answer = httpx.post(f"http://{server.address('s3')}/{bucket}?delete", content=body, headers=headers)
    assert answer.status_code == 403
    rebound = httpx.get(f"http://{server.address('s3')}/{bucket}/k", headers={"host": "evil.example"})
    assert rebound.status_code == 421
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x"


def test_keys_cannot_leave_their_bucket(server: ServerProcess, bucket: str) -> None:
    url = f"http://{server.address('s3')}"
    assert httpx.put(f"{url}/{bucket}/..%2f..%2fwal/x", content=b"1").status_code == 200
    assert httpx.get(f"{url}/{bucket}/..%2f..%2fwal/x").content == b"1"
    for path in ("tables/..%2fFORMAT", "tables/parts/..%2f..%2fFORMAT", "tables/wal/0"):
        assert httpx.get(f"{url}/{path}").status_code == 404


@pytest.mark.parametrize("query", ["max-keys=%C2%B2", "list-type=2&max-keys=%C2%B2", "max-keys=%E2%91%A0"])
def test_numbers_are_those_that_python_reads(server: ServerProcess, bucket: str, query: str) -> None:
    """Text may consist of "digits" such as ² and be no number."""
    assert httpx.get(f"http://{server.address('s3')}/{bucket}?{query}").status_code == 400
