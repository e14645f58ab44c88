"""Bodies packed by gzip or zstd, both ways."""

from __future__ import annotations

import asyncio
import io
import zlib

import zstandard

from mainstem import limits
from mainstem.doors.http.transport.errors import Refusal, invalid
from mainstem.doors.http.transport.responses import Response

_GZIP_WINDOW = 31  # zlib's way to say: with a gzip header
_LEVEL = 1  # JSON shrinks well enough at the cheapest level
_OFF_LOOP_BYTES = 64 * limits.KIB  # from here on a thread does it


async def unpacked(encoding: bytes, body: bytes, bound: int) -> bytes:
    """A request's body. Raises Refusal: 415 for an unknown encoding, 400 for damage, 413 past the bound."""
    name = encoding.strip().lower()
    if name in (b"", b"identity") or not body:
        return body
    if name not in _UNPACK:
        raise Refusal(415, "unsupported_media_type", "a body may be packed by gzip or zstd")
    bound = bound or limits.HTTP_BODY_BYTES_MAX
    unpack = _UNPACK[name]
    try:
        if len(body) >= _OFF_LOOP_BYTES:
            whole = await asyncio.to_thread(unpack, body, bound)
        else:
            whole = unpack(body, bound)
    except (zlib.error, zstandard.ZstdError, EOFError) as wrong:
        raise invalid(f"the body is no {name.decode()}: {wrong}") from None
    if len(whole) > bound:
        raise Refusal(
            413, "payload_too_large", f"the body is over the limit of {bound} bytes", {"max": bound}
        )
    return whole


def _gunzip(body: bytes, bound: int) -> bytes:
    """At most one byte more than the bound."""
    parts: list[bytes] = []
    size = 0
    while body and size <= bound:  # a gzip file may have several members
        member = zlib.decompressobj(_GZIP_WINDOW)
        parts.append(member.decompress(body, bound + 1 - size))
        size += len(parts[-1])
        if not member.eof and size <= bound:
            raise EOFError("it ends too early")
        body = member.unused_data
    return b"".join(parts)


def _unzstd(body: bytes, bound: int) -> bytes:
    unpacker = zstandard.ZstdDecompressor(max_window_size=limits.ZSTD_WINDOW_BYTES_MAX)
    with unpacker.stream_reader(io.BytesIO(body), read_across_frames=True) as reader:
        return reader.read(bound + 1)


_UNPACK = {b"gzip": _gunzip, b"x-gzip": _gunzip, b"zstd": _unzstd}


async def packed(response: Response, accepted: bytes) -> Response:
    """The response in the best encoding the client takes."""
    encoding = _choice(accepted)
    if encoding is None:
        return response
    pack = _gzip if encoding == b"gzip" else _zstd
    if len(response.body) >= _OFF_LOOP_BYTES:
        body = await asyncio.to_thread(pack, response.body)
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
