from __future__ import annotations

import struct
import tracemalloc

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.errors import InvalidBatch, TooLarge
from mainstem.records.compression import CODECS, Codec, compress, decompress

PACKED: tuple[Codec, ...] = CODECS[1:]
MIB = 1 << 20


def _xerial(*blocks: bytes) -> bytes:
    head = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    packed = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    return head + b"".join(struct.pack(">I", len(p)) + p for p in packed)


@given(codec=st.sampled_from(CODECS), data=st.binary(max_size=2000), repeat=st.sampled_from([1, 500]))
@settings(max_examples=150, deadline=None)
def test_what_is_packed_unpacks_within_exactly_its_size(codec: Codec, data: bytes, repeat: int) -> None:
    data *= repeat
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(packed), 10 * MIB) == data
    if data:
        with pytest.raises(TooLarge):
            decompress(codec, packed, len(data) - 1)


def test_java_framing_of_snappy_is_read() -> None:
    assert decompress("snappy", _xerial(b"one" * 100, b"", b"two"), 303) == b"one" * 100 + b"two"
    with pytest.raises(TooLarge):
        decompress("snappy", _xerial(b"one" * 100, b"two"), 302)
    assert decompress("snappy", _xerial(), 0) == b""


@pytest.mark.parametrize("cut", [1, 3, 5])
def test_java_framing_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(InvalidBatch):
        decompress("snappy", _xerial(b"one", b"two")[:-cut], 100)


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_costs_no_more_memory_than_allowed(codec: Codec) -> None:
    bomb = compress(codec, bytes(128 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match=f"more than {2 * MIB} bytes"):
            decompress(codec, bomb, 2 * MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The output, one piece on its way into it, and what codecs copy of the packed bytes.
    assert peak < 2 * 2 * MIB + 2 * len(bomb) + MIB


@pytest.mark.parametrize("codec", PACKED)
def test_damage_never_passes_as_anything_but_an_error_or_bytes_within_the_limit(codec: Codec) -> None:
    packed = compress(codec, b"some bytes, " * 50)
    for at in range(len(packed)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(packed)
            damaged[at] ^= flip
            try:
                assert len(decompress(codec, damaged, 1000)) <= 1000
            except (InvalidBatch, TooLarge):
                continue


@pytest.mark.parametrize("codec", PACKED)
def test_data_cut_short_is_refused(codec: Codec) -> None:
    packed = compress(codec, bytes(range(256)) * 8)
    for cut in (0, 1, len(packed) // 2, len(packed) - 1):
        with pytest.raises(InvalidBatch):
            decompress(codec, packed[:cut], MIB)


@pytest.mark.parametrize("codec", PACKED)
def test_bytes_after_the_frame_are_refused(codec: Codec) -> None:
    with pytest.raises(InvalidBatch):
        decompress(codec, compress(codec, b"data" * 100) + b"more", MIB)


@pytest.mark.parametrize("claimed", [1, 1 << 20, 1 << 31])
def test_a_snappy_block_that_lies_about_its_size_is_refused(claimed: int) -> None:
    varint = bytearray()
    while claimed > 127:
        varint.append(claimed & 127 | 128)
        claimed >>= 7
    varint.append(claimed)
    block = bytes(varint) + bytes(cramjam.snappy.compress_raw(b"twelve bytes"))[1:]
    with pytest.raises((InvalidBatch, TooLarge)):
        decompress("snappy", block, 2 * MIB)


@pytest.mark.parametrize("claimed", [5, 1 << 40])
def test_an_lz4_frame_that_lies_about_its_size_is_refused(claimed: int) -> None:
    frame = bytearray(lz4.frame.compress(b"a" * 500))
    struct.pack_into("<Q", frame, 6, claimed)
    for header_checksum in range(256):  # one of them is right for the new size
        frame[14] = header_checksum
        with pytest.raises((InvalidBatch, TooLarge)):
            decompress("lz4", frame, MIB)


@pytest.mark.parametrize("claimed", [300, 65_791])
def test_a_zstd_frame_that_lies_about_its_size_is_refused(claimed: int) -> None:
    frame = bytearray(zstandard.ZstdCompressor().compress(b"a" * 500))
    assert frame[4] & 0xC0 == 0x40, "the content size stands in two bytes, less 256"
    struct.pack_into("<H", frame, 5, claimed - 256)
    with pytest.raises((InvalidBatch, TooLarge)):
        decompress("zstd", frame, MIB)


def test_a_zstd_window_beyond_the_limit_is_refused() -> None:
    magic = struct.pack("<I", zstandard.MAGIC_NUMBER)
    frame = magic + bytes([0x00, (30 - 10) << 3]) + bytes([0x01, 0x00, 0x00])
    with pytest.raises(InvalidBatch):
        decompress("zstd", frame, MIB)


def test_streamed_zstd_without_a_declared_size_is_read() -> None:
    packer = zstandard.ZstdCompressor(level=3).compressobj()
    data = bytes(range(256)) * 4000
    packed = packer.compress(data) + packer.flush()
    assert decompress("zstd", packed, len(data)) == data
