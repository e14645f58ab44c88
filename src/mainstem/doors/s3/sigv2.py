"""Presigned URLs of signature version 2, which boto3, the AWS CLI 1 and s3fs make unless they are told otherwise.

| signed | |
|---|---|
| method, `content-md5`, `content-type` | one a line |
| `Expires` | seconds since 1970 |
| each `x-amz-` header, sorted | `name:value`, also those that the client put into the query |
| path, and the parameters of the query that name another resource | as they are in the URL; values decoded |

Version 2 in the header Authorization is refused: no client sends it by default.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mainstem.doors.s3.errors import S3Error, access_denied

EXPIRES_DIGITS_MAX = 12

# Parameters that belong to the resource; others of the query are not signed.
_OF_RESOURCE = frozenset(
    (
        *("accelerate", "acl", "analytics", "cors", "defaultObjectAcl", "delete", "inventory", "lifecycle"),
        *("location", "logging", "metrics", "notification", "object-lock", "partNumber", "policy"),
        *("replication", "requestPayment", "restore", "select", "select-type", "storageClass", "tagging"),
        *("torrent", "uploadId", "uploads", "versionId", "versioning", "versions", "website"),
        *("response-cache-control", "response-content-disposition", "response-content-encoding"),
        *("response-content-language", "response-content-type", "response-expires"),
    )
)

_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")


@dataclass(frozen=True, slots=True)
class PresignedV2:
    """The signature of a URL as the URL gives it."""

    access_key_id: str
    value: str  # base64
    expires_s: int  # since 1970
    token: str  # session token


def is_presigned_v2(query: Sequence[tuple[str, str]]) -> bool:
    return {"Signature", "AWSAccessKeyId"} <= {name for name, _ in query}


def given_presigned_v2(query: Sequence[tuple[str, str]]) -> PresignedV2 | None:
    """The signature of a URL; None: it has none of version 2. Raises S3Error."""
    if not is_presigned_v2(query):
        return None
    asked = dict(query)
    expires = asked.get("Expires", "")
    if not expires.isascii() or not expires.isdecimal() or len(expires) > EXPIRES_DIGITS_MAX:
        raise access_denied("a presigned URL needs Expires, in seconds since 1970")
    token = asked.get("x-amz-security-token", "")
    return PresignedV2(asked["AWSAccessKeyId"], asked["Signature"], int(expires), token)


def with_presigned_headers(headers: Mapping[str, str], query: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The headers of a request, with those that its URL has as parameters. The URL decides: it was signed."""
    return dict(headers) | {name.lower(): value for name, value in query if _is_signed(name.lower())}


def check_presigned_v2(
    signature: PresignedV2,
    secret: str,
    method: str,
    raw_path: bytes,
    query: Sequence[tuple[str, str]],
    headers: Mapping[str, str],
    now_ms: int,
) -> None:
    """Raises S3Error unless the secret signed this request, and it has not expired. `headers` include the URL's."""
    if now_ms > signature.expires_s * 1000:
        raise access_denied("the URL has expired")
    # What is signed has no escapes, so a part of it could be moved from one header or parameter into another.
    signed = [(name, value) for name, value in headers.items() if _is_signed(name)]
    if any("\n" in value or not _HEADER_NAME.fullmatch(name) for name, value in signed):
        raise access_denied(
            "a header in a presigned URL has a line break, or a name that no header has: it could hide another "
            "signed header"
        )
    if any(name in _OF_RESOURCE and _has_parameter(value) for name, value in query):
        raise access_denied("the value of a parameter in a presigned URL contains another parameter")
    expected = sign_v2(secret, method, raw_path, query, headers, signature.expires_s)
    if not hmac.compare_digest(expected.encode(), signature.value.encode()):
        raise S3Error(
            403,
            "SignatureDoesNotMatch",
            "the signature does not match: check the secret access key and how the client signs",
        )


def sign_v2(
    secret: str,
    method: str,
    raw_path: bytes,
    query: Sequence[tuple[str, str]],
    headers: Mapping[str, str],
    expires_s: int,
) -> str:
    """The signature of a request, in base64."""
    custom = [
        f"{name}:{value.strip()}" for name, value in sorted(headers.items()) if name.startswith("x-amz-")
    ]
    standard = (headers.get("content-md5", ""), headers.get("content-type", ""))
    resource = raw_path.decode("latin-1")
    named = [f"{name}={value}" if value else name for name, value in sorted(query) if name in _OF_RESOURCE]
    if named:
        resource += "?" + "&".join(named)
    to_sign = "\n".join((method, *standard, str(expires_s), *custom, resource))
    digest = hmac.digest(secret.encode(), to_sign.encode("utf-8", "replace"), "sha1")
    return base64.b64encode(digest).decode()


def _has_parameter(value: str) -> bool:
    """Whether a value would hide the parameters that are signed after it."""
    return any(part.partition("=")[0] in _OF_RESOURCE for part in value.split("&")[1:])


def _is_signed(name: str) -> bool:
    return name.startswith("x-amz-") or name in ("content-md5", "content-type")
