"""Codecs of the record section, with bounded decompression.

The size that a compressed section declares is never trusted: output is requested in pieces, and the first byte past
`max_bytes` raises TooLarge. (Only zstd may hold a few more 128 KiB blocks until it notices.)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Literal, cast

from mainstem import limits
from mainstem.errors import InvalidBatch, TooLarge

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")  # the index is the id in the attributes

Bytes = bytes | bytearray | memoryview

# Framing of Java's snappy streams: magic, version and minimum compatible version (u4 each, big-endian), then
# blocks of a u4 length and a raw snappy block.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEAD_BYTES = len(_XERIAL_MAGIC) + 8
_BLOCK_LENGTH = struct.Struct(">I")

_GZIP_WBITS = 31  # a 32 KiB window, in a gzip wrapper
_PIECE_BYTES_MIN = 64 * limits.KIB
_ZSTD_BLOCK_BYTES = 128 * limits.KIB  # maximum output of one block ...
_ZSTD_BLOCK_STORED_BYTES_MIN = 4  # ... and its minimum input
_ZSTD_SUSPECT_RATIO = 64  # data that shrank more than this is decompressed in small steps ...
_ZSTD_SUSPECT_BLOCKS = 64  # ... of this many blocks


def codec_id(codec: Codec) -> int:
    """The codec's number in the batch attributes."""
    if codec not in CODECS:
        raise InvalidBatch(f"unknown codec {codec!r}: use one of {', '.join(CODECS)}")
    return CODECS.index(codec)


def compress(codec: Codec, data: Bytes) -> bytes:
    """Compress one record section."""
    match codec:
        case "none":
            return bytes(data)
        case "gzip":
            packer = zlib.compressobj(wbits=_GZIP_WBITS)
            return packer.compress(data) + packer.flush()
        case "snappy":
            import cramjam

            return bytes(cramjam.snappy.compress_raw(data))
        case "lz4":
            import lz4.frame

            return cast(bytes, lz4.frame.compress(data))
        case "zstd":
            import zstandard

            return zstandard.ZstdCompressor().compress(data)


def decompress(codec: Codec, data: Bytes, max_bytes: int) -> bytes:
    """Decompress one record section. Raises TooLarge past `max_bytes`, InvalidBatch if it is damaged."""
    unpack = _UNPACKERS[codec]
    return unpack(memoryview(data).cast("B"), max_bytes)


def _unpack_none(data: memoryview, max_bytes: int) -> bytes:
    _check_size(len(data), max_bytes)
    return bytes(data)


def _unpack_gzip(data: memoryview, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    rest: bytes | memoryview = data
    stream = zlib.decompressobj(wbits=_GZIP_WBITS)
    while not stream.eof:
        try:
            piece = stream.decompress(rest, _next_piece(len(data), max_bytes - size))
        except zlib.error as error:
            raise InvalidBatch(f"gzip data is damaged: {error}") from error
        rest = stream.unconsumed_tail
        if not (piece or rest or stream.eof):
            raise InvalidBatch("gzip data is truncated")
        pieces.append(piece)
        size += len(piece)
        _check_size(size, max_bytes)
    _check_nothing_left(len(stream.unused_data))
    return _joined(pieces)


def _unpack_snappy(data: memoryview, max_bytes: int) -> bytes:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _unpack_snappy_block(data, max_bytes)
    out = bytearray()
    at = _XERIAL_HEAD_BYTES
    while at < len(data):
        if len(data) - at < _BLOCK_LENGTH.size:
            raise InvalidBatch("snappy data is truncated inside a block length")
        (length,) = _BLOCK_LENGTH.unpack_from(data, at)
        at += _BLOCK_LENGTH.size
        if length > len(data) - at:
            raise InvalidBatch(f"snappy block of {length} bytes, but only {len(data) - at} follow")
        out += _unpack_snappy_block(data[at : at + length], max_bytes - len(out))
        at += length
    return bytes(out)


def _unpack_snappy_block(block: memoryview, max_bytes: int) -> bytes:
    import cramjam

    try:
        _check_size(cramjam.snappy.decompress_raw_len(block), max_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise InvalidBatch(f"snappy data is damaged: {error}") from error


def _unpack_lz4(data: memoryview, max_bytes: int) -> bytes:
    import lz4.frame

    pieces: list[bytes] = []
    size = 0
    rest: bytes | memoryview = data
    frame = lz4.frame.LZ4FrameDecompressor()
    while not frame.eof:
        try:
            piece = frame.decompress(rest, max_length=_next_piece(len(data), max_bytes - size))
        except RuntimeError as error:
            raise InvalidBatch(f"lz4 data is damaged: {error}") from error
        rest = b""
        if not piece and not frame.eof and frame.needs_input:
            raise InvalidBatch("lz4 data is truncated")
        pieces.append(piece)
        size += len(piece)
        _check_size(size, max_bytes)
    _check_nothing_left(len(frame.unused_data or b""))
    return _joined(pieces)


def _unpack_zstd(data: memoryview, max_bytes: int) -> bytes:
    import zstandard

    pieces: list[bytes] = []
    size = at = 0
    frame = zstandard.ZstdDecompressor(max_window_size=limits.ZSTD_WINDOW_BYTES_MAX).decompressobj()
    while not frame.eof:
        if at >= len(data):
            raise InvalidBatch("zstd data is truncated")
        # A call cannot bound its output, so its input is bounded, by the number of blocks that may still come.
        blocks = (max_bytes - size) // _ZSTD_BLOCK_BYTES + 1
        if size >= _ZSTD_SUSPECT_RATIO * at:  # at the start, too: it may decompress to far more than its size
            blocks = min(blocks, _ZSTD_SUSPECT_BLOCKS)
        step = blocks * _ZSTD_BLOCK_STORED_BYTES_MIN
        try:
            pieces.append(frame.decompress(data[at : at + step]))
        except zstandard.ZstdError as error:
            raise InvalidBatch(f"zstd data is damaged: {error}") from error
        size += len(pieces[-1])
        _check_size(size, max_bytes)
        at += step
    _check_nothing_left(len(frame.unused_data) + max(0, len(data) - at))
    return _joined(pieces)


_UNPACKERS: dict[Codec, Callable[[memoryview, int], bytes]] = {
    "none": _unpack_none,
    "gzip": _unpack_gzip,
    "snappy": _unpack_snappy,
    "lz4": _unpack_lz4,
    "zstd": _unpack_zstd,
}


def _joined(pieces: list[bytes]) -> bytes:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _next_piece(stored_bytes: int, room: int) -> int:
    """How much output to request: enough for usual data in one call, and at most one byte past the limit.

    That byte distinguishes "exactly full" from "too large"; no codec treats 0 as a limit of 0 bytes."""
    return min(room + 1, max(_PIECE_BYTES_MIN, 8 * stored_bytes))


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise TooLarge(f"the record section decompresses to more than {max_bytes} bytes")


def _check_nothing_left(size: int) -> None:
    # Every client compresses a section as one frame; millions of empty frames would only waste time.
    if size:
        raise InvalidBatch(f"{size} bytes follow the compressed frame of the record section")
