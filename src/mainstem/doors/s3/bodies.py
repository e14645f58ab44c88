"""Bodies of requests: received in steps, unframed (aws-chunked), hashed and checked, never whole in memory."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Protocol

import crc32c

from mainstem import limits
from mainstem.doors.http.transport.responses import Receive
from mainstem.doors.s3.errors import S3Error, invalid_argument, not_implemented
from mainstem.doors.s3.sigv4 import UNSIGNED, ChunkSignatures
from mainstem.records.crc64 import CRC32_POLYNOMIAL, CRC32C_POLYNOMIAL, CRC64_POLYNOMIAL, crc64

STEP_BYTES = limits.MIB  # received, hashed and stored at a time
CHUNK_HEAD_BYTES_MAX = 4 * limits.KIB  # the line in front of a chunk
TRAILER_BYTES_MAX = 8 * limits.KIB
OBJECT_BYTES_MAX = 5 * limits.GIB  # of one PUT

_STREAMING = "STREAMING-"
_DECODED_LENGTH = "x-amz-decoded-content-length"
_INLINE_BYTES_MAX = 32 * limits.KIB  # hashed on the loop: less work than a thread hand-over
ALGORITHMS = ("CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256")
# Those whose checksum of an object follows from the checksums of its parts: polynomial and bits.
JOINABLE = {
    "CRC32": (CRC32_POLYNOMIAL, 32),
    "CRC32C": (CRC32C_POLYNOMIAL, 32),
    "CRC64NVME": (CRC64_POLYNOMIAL, 64),
}


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


class Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def digest(self) -> bytes: ...


class _Crc:
    def __init__(self, function: Callable[[bytes, int], int], size: int = 4) -> None:
        self._function = function
        self._size = size
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = self._function(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size, "big")


def new_hash(algorithm: str) -> Hash:
    """Raises S3Error."""
    if algorithm == "CRC32":
        return _Crc(zlib.crc32)
    if algorithm == "CRC32C":
        return _Crc(crc32c.crc32c)
    if algorithm == "CRC64NVME":
        return _Crc(crc64, 8)
    if algorithm == "SHA1":
        return hashlib.sha1(usedforsecurity=False)
    if algorithm == "SHA256":
        return hashlib.sha256()
    raise not_implemented(f"the checksum algorithm {algorithm[:16]}; it offers {', '.join(ALGORITHMS)}")


class S3Body:
    """The body of one request. Iterate over `chunks` once; then the digests are known."""

    def __init__(
        self, receive: Receive, headers: Mapping[str, str], signatures: ChunkSignatures | None, signed: bool
    ) -> None:
        self._receive = receive
        self._headers = headers
        payload = headers.get("x-amz-content-sha256", UNSIGNED)
        framed = "aws-chunked" in headers.get("content-encoding", "") and _DECODED_LENGTH in headers
        self._framed = framed or payload.startswith(_STREAMING)
        self._sha256 = "" if payload.startswith(_STREAMING) or payload == UNSIGNED or not signed else payload
        self._signatures = signatures if payload.startswith(f"{_STREAMING}AWS4-HMAC-SHA256-PAYLOAD") else None
        self._signed_trailer = payload.endswith("-TRAILER") and self._signatures is not None
        self._algorithm, self._checksum = _declared(headers)
        self._trailers: dict[str, str] = {}
        self._more = True
        self._raw = bytearray()  # received and not unframed yet
        self.size = 0
        self.received = 0
        self._md5: Hash = hashlib.md5(usedforsecurity=False)
        self._hashes: dict[str, Hash] = {}
        for name in {self._algorithm, "SHA256" if self._sha256 else ""} - {""}:
            self._hashes[name] = new_hash(name)

    @property
    def complete(self) -> bool:
        """Whether all of it was received."""
        return not self._more

    @property
    def etag(self) -> str:
        return self._md5.digest().hex()

    @property
    def checksum(self) -> str:
        """ "ALGORITHM=base64", or empty."""
        if not self._algorithm:
            return ""
        digest = self._hashes[self._algorithm].digest()
        return f"{self._algorithm}={base64.b64encode(digest).decode()}"

    def use(self, algorithm: str) -> None:
        """Also compute this checksum, if the client declares none."""
        if algorithm and not self._algorithm:
            self._algorithm = algorithm
            self._hashes.setdefault(algorithm, new_hash(algorithm))

    def check_length(self) -> None:
        """Raises S3Error, before anything is received."""
        declared = self._headers.get(_DECODED_LENGTH if self._framed else "content-length")
        if declared is None:
            if self._headers.get("transfer-encoding") is None:
                raise S3Error(411, "MissingContentLength", "send the length of the body")
        elif not declared.isdecimal() or len(declared) > 15:
            raise invalid_argument("the length of the body is malformed")
        elif int(declared) > OBJECT_BYTES_MAX:
            raise S3Error(
                400, "EntityTooLarge", "one PUT takes up to 5 GiB: use a multipart upload for larger objects"
            )

    async def read(self, bytes_max: int) -> bytes:
        """A small body as a whole. Raises S3Error, ClientGone."""
        parts, size = [], 0
        async for chunk in self.chunks():
            size += len(chunk)
            if size > bytes_max:
                raise S3Error(400, "MaxMessageLengthExceeded", f"this body takes up to {bytes_max} bytes")
            parts.append(chunk)
        return b"".join(parts)

    async def discard(self, bytes_max: int, seconds_max: float) -> None:
        """Receive the rest, unless it is larger or arrives more slowly. Raises ClientGone."""
        declared = self._headers.get("content-length", "")
        if declared.isdecimal() and len(declared) < 16 and int(declared) - self.received > bytes_max:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._drain(bytes_max)

    async def _drain(self, bytes_max: int) -> None:
        while self._more and bytes_max > 0:
            bytes_max -= len(await self._receive_some())

    async def chunks(self) -> AsyncIterator[bytes]:
        """The content, in steps. Raises S3Error if it is not what the request declares, ClientGone."""
        step = bytearray()
        async for part in self._unframed() if self._framed else self._plain():
            step += part
            self.size += len(part)
            if self.size > OBJECT_BYTES_MAX:
                raise S3Error(400, "EntityTooLarge", "the body is larger than 5 GiB")
            if len(step) >= STEP_BYTES:
                yield await self._hashed(bytes(step))
                step.clear()
        if step:
            yield await self._hashed(bytes(step))
        self._check_all()

    async def _hashed(self, step: bytes) -> bytes:
        if len(step) <= _INLINE_BYTES_MAX and "CRC64NVME" not in self._hashes:  # which may compile its kernel
            self._hash(step)
        else:
            await asyncio.to_thread(self._hash, step)
        return step

    def _hash(self, step: bytes) -> None:
        self._md5.update(step)
        for one in self._hashes.values():
            one.update(step)

    # Receiving

    async def _receive_some(self) -> bytes:
        if not self._more:
            return b""
        message = await self._receive()
        if message["type"] != "http.request":
            raise ClientGone
        self._more = bool(message.get("more_body"))
        body: bytes = message.get("body", b"")
        self.received += len(body)
        return body

    async def _plain(self) -> AsyncIterator[bytes]:
        while self._more:
            part = await self._receive_some()
            if part:
                yield part

    async def _unframed(self) -> AsyncIterator[bytes]:
        while True:
            head = await self._line(CHUNK_HEAD_BYTES_MAX)
            digits, _, extension = head.partition(b";")
            try:
                left = int(digits, 16)
            except ValueError:
                raise _bad_framing() from None
            if left < 0 or left > OBJECT_BYTES_MAX:
                raise _bad_framing()
            given = extension.strip().removeprefix(b"chunk-signature=").decode("latin-1")
            digest = hashlib.sha256()
            last = left == 0
            while left:
                if not self._raw:
                    await self._fill()
                part = bytes(self._raw[:left])
                del self._raw[: len(part)]
                left -= len(part)
                if self._signatures is not None:
                    digest.update(part)
                yield part
            if self._signatures is not None:
                self._signatures.check_chunk(digest.hexdigest(), given)
            if last:
                await self._trailer()
                return
            if await self._line(2):
                raise _bad_framing()

    async def _fill(self) -> None:
        part = await self._receive_some()
        if not part and not self._more:
            raise S3Error(400, "IncompleteBody", "the body ends before its last chunk")
        self._raw += part

    async def _line(self, bytes_max: int) -> bytes:
        while (at := self._raw.find(b"\r\n")) < 0:
            if len(self._raw) > bytes_max:
                raise _bad_framing()
            await self._fill()
        line = bytes(self._raw[:at])
        del self._raw[: at + 2]
        return line

    async def _trailer(self) -> None:
        signed = b""
        size = 0
        while self._raw or self._more:
            try:
                line = await self._line(TRAILER_BYTES_MAX)
            except S3Error:
                if self._raw.strip():
                    raise
                break
            size += len(line)
            if size > TRAILER_BYTES_MAX:
                raise _bad_framing()
            if not line:
                break
            name, _, value = line.decode("latin-1").partition(":")
            self._trailers[name.strip().lower()] = value.strip()
            if name.strip().lower() != "x-amz-trailer-signature":
                signed += f"{name.strip().lower()}:{value.strip()}\n".encode()
        if self._signed_trailer and self._signatures is not None:
            self._signatures.check_trailer(signed, self._trailers.get("x-amz-trailer-signature", ""))
        await self._drain(CHUNK_HEAD_BYTES_MAX)

    # Checking

    def _check_all(self) -> None:
        declared = self._headers.get(_DECODED_LENGTH) if self._framed else None
        if declared is not None and declared != str(self.size):
            raise S3Error(
                400, "IncompleteBody", "the body does not have the length that the request declares"
            )
        if self._sha256 and self._hashes["SHA256"].digest().hex() != self._sha256.lower():
            raise S3Error(
                400,
                "XAmzContentSHA256Mismatch",
                "the body does not have the SHA-256 that the request declares",
            )
        content_md5 = self._headers.get("content-md5")
        if content_md5 is not None and _decoded(content_md5, "InvalidDigest", 16) != self._md5.digest():
            raise S3Error(400, "BadDigest", "the body does not have the MD5 that the request declares")
        if self._algorithm:
            name = f"x-amz-checksum-{self._algorithm.lower()}"
            given = self._checksum or self._trailers.get(name, "")
            if given and given != self.checksum.partition("=")[2]:
                raise S3Error(
                    400,
                    "BadDigest",
                    f"the body does not have the {self._algorithm} that the request declares",
                )


def _declared(headers: Mapping[str, str]) -> tuple[str, str]:
    """The algorithm and value of the checksum that a request declares; the value may follow in a trailer."""
    prefix = "x-amz-checksum-"
    found = [
        (name[len(prefix) :].upper(), value)
        for name, value in headers.items()
        if name.startswith(prefix)
        and name not in ("x-amz-checksum-algorithm", "x-amz-checksum-type", "x-amz-checksum-mode")
    ]
    if len(found) > 1:
        raise S3Error(400, "InvalidRequest", "a request declares one checksum at most")
    if found:
        new_hash(found[0][0])  # raises for an algorithm that is not offered
        return found[0]
    trailer = headers.get("x-amz-trailer", "").strip().lower()
    if trailer.startswith(prefix):
        algorithm = trailer[len(prefix) :].upper()
        new_hash(algorithm)
        return algorithm, ""
    algorithm = headers.get("x-amz-sdk-checksum-algorithm", "").upper()
    return (algorithm, "") if algorithm in ALGORITHMS else ("", "")


def _decoded(text: str, code: str, size: int) -> bytes:
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if len(found) != size:
        raise S3Error(400, code, "the digest of the body is malformed")
    return found


def _bad_framing() -> S3Error:
    return S3Error(400, "InvalidRequest", "the body is not framed as aws-chunked")
