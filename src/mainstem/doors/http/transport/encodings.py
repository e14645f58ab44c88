"""Compression of request and response bodies by gzip and zstd."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Protocol

import zstandard

from mainstem import limits
from mainstem.doors.http.transport.errors import Refusal, invalid
from mainstem.doors.http.transport.responses import Response

_GZIP_WINDOW = 31  # tells zlib to expect a gzip header
_LEVEL = 1  # JSON compresses well enough at the fastest level
_OFF_LOOP_BYTES = 64 * limits.KIB  # larger bodies are compressed on a thread …
_INLINE_BYTES_MAX = 512 * limits.KIB  # … and small bodies that decompress to more than this
_EXPANDED_BYTES_MIN = 16 * limits.MIB  # any body may decompress to this much …
_EXPANDED_RATIO_MAX = 128  # … and a larger one to this multiple more
_STEP_BYTES = 64 * limits.KIB
_SUSPECT_STEP_BYTES = 256  # of a zstd frame that shrank its content by more than this ratio, or begins
_SUSPECT_RATIO = 64
_MEMBERS_MIN = 64  # members of a gzip file, or frames of zstd, that any body may have …
_MEMBER_BYTES_MIN = 1 * limits.KIB  # … and one more for each KiB: a million empty ones only cost time


class OffLoop(Protocol):
    """Runs work on a separate thread, fairly between clients."""

    async def __call__(self, work: Callable[[], bytes], /) -> bytes: ...


async def unpacked(encoding: bytes, body: bytes, bound: int, off_loop: OffLoop) -> bytes:
    """A request's body. Raises Refusal: 415 for an unknown encoding, 400 for damage, 413 past the bound."""
    name = encoding.strip().lower()
    if name in (b"", b"identity") or not body:
        return body
    if name not in _UNPACK:
        raise Refusal(415, "unsupported_media_type", "a body may be compressed with gzip or zstd")
    bound = min(bound or limits.HTTP_BODY_BYTES_MAX, _EXPANDED_BYTES_MIN + _EXPANDED_RATIO_MAX * len(body))
    unpack = _UNPACK[name]
    try:
        whole = b""
        inline = min(bound, _INLINE_BYTES_MAX)
        if len(body) < _OFF_LOOP_BYTES:
            whole = unpack(body, inline)
        if len(body) >= _OFF_LOOP_BYTES or (len(whole) > inline and inline < bound):
            whole = await off_loop(lambda: unpack(body, bound))
    except (zlib.error, zstandard.ZstdError, EOFError) as wrong:
        raise invalid(f"the body is not valid {name.decode()}: {wrong}") from None
    if len(whole) > bound:
        raise Refusal(
            413, "payload_too_large", f"the body is over the limit of {bound} bytes", {"max": bound}
        )
    return whole


def _gunzip(body: bytes, bound: int) -> bytes:
    """At most one byte more than the bound."""
    parts: list[bytes] = []
    size = at = members = 0
    members_max = _MEMBERS_MIN + len(body) // _MEMBER_BYTES_MIN
    while at < len(body) and size <= bound:  # a gzip file may have several members
        members += 1
        if members > members_max:
            raise EOFError("it has too many members")
        member = zlib.decompressobj(_GZIP_WINDOW)
        # In steps: what follows a member is copied, and must not be the whole rest of the body each time.
        while not member.eof and at < len(body) and size <= bound:
            step = body[at : at + _STEP_BYTES]
            parts.append(member.decompress(step, bound + 1 - size))
            size += len(parts[-1])
            at += len(step) - len(member.unused_data) - len(member.unconsumed_tail)
        if not member.eof and size <= bound:
            raise EOFError("it ends too early")
    return b"".join(parts)


def _unzstd(body: bytes, bound: int) -> bytes:
    """At most one byte more than the bound."""
    unpacker = zstandard.ZstdDecompressor(max_window_size=limits.ZSTD_WINDOW_BYTES_MAX)
    parts: list[bytes] = []
    size = at = frames = 0
    frames_max = _MEMBERS_MIN + len(body) // _MEMBER_BYTES_MIN
    while at < len(body) and size <= bound:
        frames += 1
        if frames > frames_max:
            raise EOFError("it has too many frames")
        frame = unpacker.decompressobj()
        while not frame.eof and at < len(body) and size <= bound:
            # The output of a call has no bound, but that of its input: a block of 4 bytes gives 128 KiB at most.
            step = body[at : at + (_SUSPECT_STEP_BYTES if size >= _SUSPECT_RATIO * at else _STEP_BYTES)]
            parts.append(frame.decompress(step))
            size += len(parts[-1])
            at += len(step) - len(frame.unused_data)
        if not frame.eof and size <= bound:
            raise EOFError("it ends too early")
    return b"".join(parts)


_UNPACK = {b"gzip": _gunzip, b"x-gzip": _gunzip, b"zstd": _unzstd}


async def packed(response: Response, accepted: bytes, off_loop: OffLoop) -> Response:
    """The response in the best encoding the client takes."""
    encoding = _choice(accepted)
    if encoding is None:
        return response
    pack = _gzip if encoding == b"gzip" else _zstd
    if len(response.body) >= _OFF_LOOP_BYTES:
        body = await off_loop(lambda: pack(response.body))
    else:
        body = pack(response.body)
    headers = (*response.headers, (b"content-encoding", encoding), (b"vary", b"accept-encoding"))
    return response._replace(body=body, headers=headers)


def _choice(accepted: bytes) -> bytes | None:
    """zstd or gzip, unless the client gives it a weight of 0."""
    offered = set()
    for item in accepted.lower().split(b","):
        name, _, weight = item.partition(b";")
        if weight.strip().replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000"):
            offered.add(name.strip())
    return next((name for name in (b"zstd", b"gzip") if name in offered), None)


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    return packer.compress(body) + packer.flush()


def _zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL).compress(body)
