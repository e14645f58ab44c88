from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem import limits
from mainstem.records.building import build_batch
from mainstem.records.checksums import joined
from mainstem.records.header import Slice, slice_crc

from .samples import NOW_MS

_LARGE = limits.CRC_JOINED_BYTES_MIN
crcs = st.integers(0, (1 << 32) - 1)
counts = st.integers(0, (1 << 31) - 1)


@settings(deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_joined_is_the_checksum_of_both(first: bytes, second: bytes) -> None:
    assert joined(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 64, 255, 256, 257])
def test_every_split_of_some_bytes_gives_the_same(size: int) -> None:
    whole = bytes(range(256)) * 2
    whole = whole[:size]
    for at in range(size + 1):
        assert joined(crc32c(whole[:at]), crc32c(whole[at:]), size - at) == crc32c(whole)


@pytest.mark.parametrize("size", [(1 << 16) - 1, 1 << 16, 1_000_003, (1 << 24) + 1, 64 << 20])
def test_long_second_parts_are_exact(size: int) -> None:
    second = bytes(size)
    assert joined(crc32c(b"head"), crc32c(second), size) == crc32c(second, crc32c(b"head"))


@settings(deadline=None)
@given(crcs, counts, counts)
def test_what_zeros_do_adds_up_however_many(crc: int, some: int, more: int) -> None:
    assert joined(joined(crc, 0, some), 0, more) == joined(crc, 0, some + more)


def _batch(size: int, seed: int = 0) -> bytearray:
    return build_batch([bytes([seed]) * size], timestamps_ms=NOW_MS)


@pytest.mark.parametrize(
    ("slice", "batches"),
    [
        (_batch(10), 1),
        (_batch(_LARGE), 1),
        (memoryview(_batch(3 * _LARGE + 17, 9)), 1),
        (_batch(_LARGE) + _batch(_LARGE, 5), 2),
    ],
    ids=["small", "large", "a view", "two batches"],
)
def test_the_checksum_of_a_slice_is_that_of_its_bytes(slice: Slice, batches: int) -> None:
    assert slice_crc(slice, batches) == crc32c(slice)
