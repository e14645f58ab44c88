"""Signatures of S3 requests, version 4: in headers, in the query (presigned), and of the chunks of a body."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from hashlib import sha256
from urllib.parse import quote, unquote_to_bytes

from mainstem.doors.s3.errors import S3Error, access_denied

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"
SKEW_S_MAX = 900
PRESIGNED_S_MAX = 604_800
EMPTY_SHA256 = sha256(b"").hexdigest()

_FIELD = re.compile(r"(Credential|SignedHeaders|Signature)=([^,\s]+)")
_TIME = "%Y%m%dT%H%M%SZ"
_UNQUOTED = "-_.~"


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature as the request gives it."""

    access_key_id: str
    date: str  # of the credential's scope: YYYYMMDD
    region: str
    service: str
    signed_headers: tuple[str, ...]
    value: str
    time: str  # YYYYMMDDTHHMMSSZ
    token: str  # session token
    expires_s: int | None  # of a presigned URL

    @property
    def scope(self) -> str:
        return f"{self.date}/{self.region}/{self.service}/aws4_request"


def given_signature(query: Sequence[tuple[str, str]], headers: Mapping[str, str]) -> Signature | None:
    """The signature of a request; None: it has none. Raises S3Error."""
    authorization = headers.get("authorization", "")
    if authorization:
        if not authorization.startswith(ALGORITHM):
            raise S3Error(400, "InvalidRequest", f"this server takes signatures of {ALGORITHM} only")
        fields = dict(_FIELD.findall(authorization))
        if len(fields) != 3:
            raise S3Error(400, "AuthorizationHeaderMalformed", "the Authorization header is malformed")
        time = _time_of(headers)
        token = headers.get("x-amz-security-token", "")
        return _signature(fields, time, token, None)
    asked = dict(query)
    if "X-Amz-Signature" not in asked and "X-Amz-Algorithm" not in asked:
        return None
    if asked.get("X-Amz-Algorithm") != ALGORITHM:
        raise S3Error(400, "AuthorizationQueryParametersError", f"X-Amz-Algorithm must be {ALGORITHM}")
    fields = {
        "Credential": asked.get("X-Amz-Credential", ""),
        "SignedHeaders": asked.get("X-Amz-SignedHeaders", ""),
        "Signature": asked.get("X-Amz-Signature", ""),
    }
    expires = asked.get("X-Amz-Expires", "")
    if not expires.isdecimal() or len(expires) > 6 or not 0 < int(expires) <= PRESIGNED_S_MAX:
        raise S3Error(
            400, "AuthorizationQueryParametersError", f"X-Amz-Expires must be 1 to {PRESIGNED_S_MAX}"
        )
    return _signature(
        fields, asked.get("X-Amz-Date", ""), asked.get("X-Amz-Security-Token", ""), int(expires)
    )


def _signature(fields: Mapping[str, str], time: str, token: str, expires_s: int | None) -> Signature:
    parts = fields["Credential"].rsplit("/", 4)
    if len(parts) != 5 or parts[4] != "aws4_request" or parts[3] != "s3":
        raise S3Error(
            400, "AuthorizationHeaderMalformed", "the credential is not KEY/DATE/REGION/s3/aws4_request"
        )
    id, date, region, service, _ = parts
    if not time.startswith(date):
        raise S3Error(403, "SignatureDoesNotMatch", "the date of the request is not that of its credential")
    signed = tuple(fields["SignedHeaders"].split(";"))
    return Signature(id, date, region, service, signed, fields["Signature"], time, token, expires_s)


def _time_of(headers: Mapping[str, str]) -> str:
    given = headers.get("x-amz-date", "")
    if given:
        return given
    try:
        return parsedate_to_datetime(headers.get("date", "")).astimezone(UTC).strftime(_TIME)
    except (TypeError, ValueError):
        raise access_denied("a signed request needs X-Amz-Date or Date") from None


def check_time(signature: Signature, now_ms: int) -> None:
    """Raises S3Error."""
    try:
        at = datetime.strptime(signature.time, _TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise access_denied("the time of the request is malformed") from None
    now = now_ms / 1000
    if signature.expires_s is None:
        if abs(now - at) > SKEW_S_MAX:
            raise S3Error(403, "RequestTimeTooSkewed", "the clocks of client and server differ too much")
    elif now > at + signature.expires_s:
        raise access_denied("the URL has expired")
    elif at > now + SKEW_S_MAX:
        raise access_denied("the URL is not valid yet")


def check_signature(
    signature: Signature,
    secret: str,
    method: str,
    raw_path: bytes,
    query: Sequence[tuple[str, str]],
    headers: Mapping[str, str],
) -> None:
    """Raises S3Error unless the secret signed this request."""
    signed = signature.signed_headers
    unsigned = [name for name in headers if name.startswith("x-amz-") and name not in signed]
    if signature.expires_s is None and unsigned == ["x-amz-content-sha256"]:
        unsigned = []  # its value is signed in any case
    if "host" not in signed or unsigned:
        raise access_denied("the host and every x-amz- header must be signed")
    payload = headers.get("x-amz-content-sha256", UNSIGNED)
    expected = sign(signature, secret, method, raw_path, query, headers, payload)
    if not hmac.compare_digest(expected.encode(), signature.value.encode()):
        raise S3Error(
            403,
            "SignatureDoesNotMatch",
            "the signature does not match: check the secret access key and how the client signs",
        )


def sign(
    signature: Signature,
    secret: str,
    method: str,
    raw_path: bytes,
    query: Sequence[tuple[str, str]],
    headers: Mapping[str, str],
    payload: str,
) -> str:
    """The signature of a request, in hex. Of `signature`, its value does not matter."""
    canonical = "\n".join(
        (
            method,
            canonical_path(raw_path),
            canonical_query(query),
            "".join(
                f"{name}:{' '.join(headers.get(name, '').split())}\n" for name in signature.signed_headers
            ),
            ";".join(signature.signed_headers),
            payload,
        )
    )
    to_sign = "\n".join(
        (
            ALGORITHM,
            signature.time,
            signature.scope,
            sha256(canonical.encode("latin-1", "replace")).hexdigest(),
        )
    )
    key = signing_key(secret, signature.date, signature.region, signature.service)
    return hmac.new(key, to_sign.encode(), sha256).hexdigest()


def canonical_path(raw_path: bytes) -> str:
    return quote(unquote_to_bytes(raw_path), safe="/" + _UNQUOTED)


def canonical_query(query: Sequence[tuple[str, str]]) -> str:
    pairs = sorted(
        (quote(name, safe=_UNQUOTED), quote(value, safe=_UNQUOTED))
        for name, value in query
        if name != "X-Amz-Signature"
    )
    return "&".join(f"{name}={value}" for name, value in pairs)


@lru_cache(maxsize=1024)
def signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


class ChunkSignatures:
    """Checks the signatures of the chunks of a body, each of which signs the one before."""

    def __init__(self, signature: Signature, secret: str) -> None:
        self._key = signing_key(secret, signature.date, signature.region, signature.service)
        self._time = signature.time
        self._scope = signature.scope
        self._previous = signature.value

    def check_chunk(self, digest: str, given: str) -> None:
        """Raises S3Error. `digest` is the SHA-256 of the chunk."""
        self._check(f"{ALGORITHM}-PAYLOAD", f"{EMPTY_SHA256}\n{digest}", given)

    def check_trailer(self, trailer: bytes, given: str) -> None:
        """Raises S3Error."""
        self._check(f"{ALGORITHM}-TRAILER", sha256(trailer).hexdigest(), given)

    def _check(self, algorithm: str, digest: str, given: str) -> None:
        to_sign = f"{algorithm}\n{self._time}\n{self._scope}\n{self._previous}\n{digest}"
        expected = hmac.new(self._key, to_sign.encode(), sha256).hexdigest()
        if not hmac.compare_digest(expected.encode(), given.encode()):
            raise S3Error(403, "SignatureDoesNotMatch", "the signature of a chunk of the body does not match")
        self._previous = expected
