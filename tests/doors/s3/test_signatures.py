"""Signatures: who may do what at the S3 door of a server that asks for credentials."""

from __future__ import annotations

import hashlib
import re
import socket
from collections.abc import Iterator
from typing import Any

import boto3
import httpx
import pytest
from botocore.auth import HmacV1QueryAuth, S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.doors.s3.errors import S3Error
from mainstem.doors.s3.requests import parse_query
from mainstem.doors.s3.sigv2 import (
    PresignedV2,
    check_presigned_v2,
    given_presigned_v2,
    sign_v2,
    with_presigned_headers,
)
from mainstem.doors.s3.sigv4 import check_signature, given_signature
from mainstem.testing.server import ServerProcess

from .conftest import client, code, expect


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    keys = {"MAINSTEM_API_KEYS": "boss,reader:read,narrow:read+write:own-"}
    flags = ("--text", "off", "--kafka", "off")
    with ServerProcess(tmp_path_factory.mktemp("guarded") / "data", *flags, env=keys) as server:
        yield server


def issued(server: ServerProcess, key: str, ttl_ms: int = 0) -> dict[str, Any]:
    answer = httpx.post(
        f"http://{server.address('http')}/v0/s3/credentials",
        json={"ttl_ms": ttl_ms},
        headers={"authorization": f"Bearer {key}"},
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def by(server: ServerProcess, key: str, ttl_ms: int = 0) -> Any:
    found = issued(server, key, ttl_ms)
    return client(server, found["access_key_id"], found["secret_access_key"], found["session_token"] or None)


@pytest.mark.parametrize("ttl_ms", [0, 60_000])
def test_credentials_follow_from_an_api_key(guarded: ServerProcess, ttl_ms: int) -> None:
    boss, reader = (by(guarded, key, ttl_ms) for key in ("boss", "reader"))
    bucket = f"own-{ttl_ms}"
    boss.create_bucket(Bucket=bucket)
    boss.put_object(Bucket=bucket, Key="k", Body=b"secret")
    assert reader.get_object(Bucket=bucket, Key="k")["Body"].read() == b"secret"
    expect(
        "AccessDenied",
        lambda: reader.put_object(Bucket=bucket, Key="k", Body=b""),
        lambda: reader.delete_object(Bucket=bucket, Key="k"),
        lambda: reader.delete_bucket(Bucket=bucket),
        lambda: reader.create_bucket(Bucket="mine"),
    )


def test_unknown_wrong_and_missing_credentials_are_refused(guarded: ServerProcess) -> None:
    known = issued(guarded, "boss")["access_key_id"]
    for id, secret, expected in (
        ("nobody", "x", "InvalidAccessKeyId"),
        (known, "wrong", "SignatureDoesNotMatch"),
    ):
        with pytest.raises(ClientError) as refused:
            client(guarded, id, secret).list_buckets()
        assert code(refused) == expected
    assert httpx.get(f"http://{guarded.address('s3')}/").status_code == 403


@pytest.mark.parametrize("length", [1, 1_000, 1 << 30])
def test_a_refusal_does_not_wait_for_the_body(guarded: ServerProcess, length: int) -> None:
    address = guarded.address("s3")
    with socket.create_connection((address.host, address.port), 30) as connection:
        connection.sendall(f"PUT /own-b/k HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n".encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 403 ")


def test_a_session_token_cannot_be_changed_or_used_with_another_key(guarded: ServerProcess) -> None:
    boss, reader = (issued(guarded, key, 60_000) for key in ("boss", "reader"))
    mark, content, signature = reader["session_token"].split(".")
    for id, secret, token in (
        (boss["access_key_id"], boss["secret_access_key"], reader["session_token"]),
        (reader["access_key_id"], reader["secret_access_key"], None),
        (reader["access_key_id"], reader["secret_access_key"], f"{mark}.{content}A.{signature}"),
        (reader["access_key_id"], reader["secret_access_key"], f"{mark}.{content}.{'A' * len(signature)}"),
    ):
        with pytest.raises(ClientError):
            client(guarded, id, secret, token).list_buckets()


def test_prefixes_of_a_key_hold_for_buckets(guarded: ServerProcess) -> None:
    boss, narrow = by(guarded, "boss"), by(guarded, "narrow")
    for bucket in ("own-bucket", "other-bucket"):
        boss.create_bucket(Bucket=bucket)
        boss.put_object(Bucket=bucket, Key="k", Body=b"1")
    narrow.put_object(Bucket="own-bucket", Key="k", Body=b"2")
    shown = [one["Name"] for one in narrow.list_buckets()["Buckets"]]
    assert "own-bucket" in shown
    assert "other-bucket" not in shown
    copy = {"Bucket": "other-bucket", "Key": "k"}
    expect(
        "AccessDenied",
        lambda: narrow.get_object(Bucket="other-bucket", Key="k"),
        lambda: narrow.list_objects_v2(Bucket="other-bucket"),
        lambda: narrow.copy_object(Bucket="own-bucket", Key="stolen", CopySource=copy),
    )


def test_a_rule_can_cover_a_part_of_a_bucket(guarded: ServerProcess) -> None:
    boss, reader = by(guarded, "boss"), issued(guarded, "reader")
    boss.create_bucket(Bucket="shared")
    principal = f"User:{reader['access_key_id']}"
    about = {"principal": principal, "resource": "bucket", "pattern": "prefixed"}
    rules = [
        {**about, "operation": "write", "name": "shared/in/"},
        {**about, "operation": "read", "name": "shared/private/", "permission": "deny"},
    ]
    answer = httpx.post(
        f"http://{guarded.address('http')}/v0/acls",
        json={"rules": rules},
        headers={"authorization": "Bearer boss"},
    )
    assert answer.status_code < 300, answer.text
    boss.put_object(Bucket="shared", Key="private/k", Body=b"x")
    mine = by(guarded, "reader")
    mine.put_object(Bucket="shared", Key="in/k", Body=b"x")
    expect(
        "AccessDenied",
        lambda: mine.put_object(Bucket="shared", Key="out/k", Body=b"x"),
        lambda: mine.get_object(Bucket="shared", Key="private/k"),
    )


def test_presigned_urls(guarded: ServerProcess) -> None:
    boss = by(guarded, "boss", 60_000)
    boss.create_bucket(Bucket="own-urls")
    names = {"Bucket": "own-urls", "Key": "a b+c"}
    put = boss.generate_presigned_url("put_object", Params=names, ExpiresIn=60)
    assert httpx.put(put, content=b"by url").status_code == 200
    get = boss.generate_presigned_url("get_object", Params=names, ExpiresIn=60)
    assert httpx.get(get).content == b"by url"
    assert httpx.delete(get).status_code == 403
    assert httpx.get(get.replace("own-urls", "own-bucket")).status_code == 403
    assert httpx.get(get, headers={"x-amz-meta-more": "1"}).status_code == 403
    assert httpx.get(get.replace("X-Amz-Expires=60", "X-Amz-Expires=61")).status_code == 403


@pytest.mark.parametrize("ttl_ms", [0, 60_000])
def test_presigned_urls_as_clients_make_them_by_default(guarded: ServerProcess, ttl_ms: int) -> None:
    """boto3, the AWS CLI 1 and s3fs use signature version 2 for URLs."""
    by(guarded, "boss").create_bucket(Bucket=f"own-old-urls-{ttl_ms}")
    found = issued(guarded, "boss", ttl_ms)
    boss = boto3.client(
        "s3",
        endpoint_url=f"http://{guarded.address('s3')}",
        region_name="us-east-1",
        aws_access_key_id=found["access_key_id"],
        aws_secret_access_key=found["secret_access_key"],
        aws_session_token=found["session_token"] or None,
    )
    with httpx.Client(timeout=60) as http:
        names = {"Bucket": f"own-old-urls-{ttl_ms}", "Key": "a b+c/ü"}
        with_metadata = {**names, "Metadata": {"color": "red"}, "ContentType": "text/plain"}
        put = boss.generate_presigned_url("put_object", Params=with_metadata, ExpiresIn=60)
        assert "X-Amz-Signature" not in put
        assert http.put(put, content=b"by url").status_code == 200
        assert http.put(put, content=b"", headers={"x-amz-meta-color": "blue"}).status_code == 200
        assert http.put(put, content=b"", headers={"x-amz-meta-more": "1"}).status_code == 403
        assert http.put(put, content=b"by url").status_code == 200
        renamed = {**names, "ResponseContentDisposition": "attachment; filename=x"}
        get = boss.generate_presigned_url("get_object", Params=renamed, ExpiresIn=60)
        answer = http.get(get)
        assert answer.content == b"by url"
        assert answer.headers["content-disposition"] == "attachment; filename=x"
        assert (answer.headers["x-amz-meta-color"], answer.headers["content-type"]) == ("red", "text/plain")
        assert http.delete(get).status_code == 403
        assert http.get(get.replace("own-old", "own-new")).status_code == 403
        assert http.get(get.replace("filename", "filenames")).status_code == 403
        assert http.get(get + "&versionId=null").status_code == 403
        past = boss.generate_presigned_url("get_object", Params=names, ExpiresIn=-5)
        assert "expired" in http.get(past).text
        for expires in ("", "x", "9" * 40, "\u0661"):
            assert http.get(re.sub("Expires=[0-9]+", f"Expires={expires}", get)).status_code == 403
    boss.close()


def test_a_body_must_have_the_signed_digest(guarded: ServerProcess) -> None:
    found = issued(guarded, "boss")
    by(guarded, "boss").create_bucket(Bucket="own-bodies")
    url = f"http://{guarded.address('s3')}/own-bodies/k"
    digest = hashlib.sha256(b"what was signed").hexdigest()
    request = AWSRequest("PUT", url, data=b"what was signed", headers={"x-amz-content-sha256": digest})
    S3SigV4Auth(_credentials(found), "s3", "us-east-1").add_auth(request)
    headers = dict(request.headers.items())
    answer = httpx.put(url, content=b"something else!", headers=headers)
    assert (answer.status_code, "XAmzContentSHA256Mismatch" in answer.text) == (400, True)
    assert httpx.put(url, content=b"what was signed", headers=headers).status_code == 200


def _credentials(found: dict[str, Any]) -> Credentials:
    return Credentials(found["access_key_id"], found["secret_access_key"])


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r\n"), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD"]),
    key=WORDS,
    query=st.dictionaries(WORDS, WORDS, max_size=3),
    meta=st.text("abc XYZ09-", max_size=12),
)
def test_signatures_of_botocore_match(method: str, key: str, query: dict[str, str], meta: str) -> None:
    from urllib.parse import quote, urlencode, urlsplit

    path = "/bucket/" + quote(key, safe="/~")
    url = f"http://localhost:4001{path}" + (f"?{urlencode(query, quote_via=quote)}" if query else "")
    request = AWSRequest(method, url, headers={"x-amz-meta-note": meta, "host": "localhost:4001"})
    S3SigV4Auth(Credentials("id", "secret"), "s3", "eu-west-1").add_auth(request)
    headers = {name.lower(): str(value) for name, value in request.headers.items()}
    pairs = parse_query(urlsplit(url).query.encode())
    signature = given_signature(pairs, headers)
    assert signature is not None
    check_signature(signature, "secret", method, path.encode(), pairs, headers)
    with pytest.raises(Exception, match="does not match"):
        check_signature(signature, "other", method, path.encode(), pairs, headers)


@settings(max_examples=60, deadline=None)
@given(
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD"]),
    key=WORDS,
    query=st.dictionaries(
        WORDS | st.sampled_from(["acl", "uploadId", "response-content-type", "prefix"]), WORDS, max_size=3
    ),
    meta=st.text("abc XYZ09-", max_size=12),
    token=st.sampled_from(["", "a/b+c="]),
)
def test_urls_of_botocore_in_version_2_match(
    method: str, key: str, query: dict[str, str], meta: str, token: str
) -> None:
    from urllib.parse import quote, urlencode, urlsplit

    path = "/bucket/" + quote(key, safe="/~")
    url = f"http://localhost:4001{path}" + (f"?{urlencode(query, quote_via=quote)}" if query else "")
    request = AWSRequest(method, url, headers={"x-amz-meta-note": meta})
    HmacV1QueryAuth(Credentials("id", "secret", token or None), expires=60).add_auth(request)
    parts = urlsplit(request.url)
    pairs = parse_query(parts.query.encode())
    signature = given_presigned_v2(pairs)
    assert signature is not None
    assert signature.token == token
    headers = with_presigned_headers({"host": "localhost"}, pairs)
    asked = (method, parts.path.encode(), pairs, headers)
    check_presigned_v2(signature, "secret", *asked, now_ms=0)
    with pytest.raises(Exception, match="does not match"):
        check_presigned_v2(signature, "other", *asked, now_ms=0)
    with pytest.raises(Exception, match="expired"):
        check_presigned_v2(signature, "secret", *asked, now_ms=(signature.expires_s + 1) * 1000)


def test_a_line_break_in_a_presigned_url_hides_no_header() -> None:
    """A client that has the URL of a copy must not make it one that stores other bytes."""
    signed = {"x-amz-copy-source": "/from/key", "x-amz-meta-note": "1"}
    signed = {"x-amz-a": "1", **signed}
    value = sign_v2("secret", "PUT", b"/bucket/key", [], signed, 100)
    hidden = {"x-amz-a": "1\nx-amz-copy-source:/from/key\nx-amz-meta-note:1"}
    assert sign_v2("secret", "PUT", b"/bucket/key", [], hidden, 100) == value
    signature = PresignedV2("id", value, 100, "")
    check_presigned_v2(signature, "secret", "PUT", b"/bucket/key", [], signed, 0)
    with pytest.raises(S3Error, match="line break"):
        check_presigned_v2(signature, "secret", "PUT", b"/bucket/key", [], hidden, 0)


def test_the_name_of_a_header_in_a_presigned_url_hides_no_header() -> None:
    signed = {"x-amz-copy-source": "/from/key", "x-amz-meta-note": "1"}
    value = sign_v2("secret", "PUT", b"/bucket/key", [], signed, 100)
    hidden = {"x-amz-copy-source:/from/key\nx-amz-meta-note": "1"}
    assert sign_v2("secret", "PUT", b"/bucket/key", [], hidden, 100) == value
    signature = PresignedV2("id", value, 100, "")
    with pytest.raises(S3Error, match="hide another"):
        check_presigned_v2(signature, "secret", "PUT", b"/bucket/key", [], hidden, 0)
    signed = {"x-amz-copy-source": "/from/a:b"}
    value = sign_v2("secret", "PUT", b"/bucket/key", [], signed, 100)
    signature = PresignedV2("id", value, 100, "")
    with pytest.raises(S3Error, match="hide another"):
        check_presigned_v2(
            signature, "secret", "PUT", b"/bucket/key", [], {"x-amz-copy-source:/from/a": "b"}, 0
        )


def test_a_presigned_part_does_not_replace_the_object(guarded: ServerProcess) -> None:
    """Nor does a parameter inside the value of another one read another version than the signed one."""
    boss = by(guarded, "boss")
    boss.create_bucket(Bucket="own-parts")
    boss.put_object(Bucket="own-parts", Key="k", Body=b"whole")
    upload = boss.create_multipart_upload(Bucket="own-parts", Key="k")["UploadId"]
    found = issued(guarded, "boss")
    url = f"http://{guarded.address('s3')}/own-parts/k"

    def presigned(method: str, query: str) -> str:
        request = AWSRequest(method, f"{url}?{query}")
        HmacV1QueryAuth(_credentials(found), expires=60).add_auth(request)
        return str(request.url)

    part = presigned("PUT", f"partNumber=1&uploadId={upload}")
    assert httpx.put(part.replace("&uploadId=", "%26uploadId%3D"), content=b"part").status_code == 403
    assert boss.get_object(Bucket="own-parts", Key="k")["Body"].read() == b"whole"
    assert httpx.put(part, content=b"part").status_code == 200
    old = presigned("GET", "response-content-type=text/plain&versionId=none")
    assert httpx.get(old).status_code in (400, 404)
    assert httpx.get(old.replace("&versionId=", "%26versionId%3D")).status_code == 403
    assert httpx.get(presigned("GET", "response-content-disposition=a%26b")).content == b"whole"
    boss.close()
