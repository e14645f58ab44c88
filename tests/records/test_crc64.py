"""CRC-64/NVME, and joining checksums."""

from __future__ import annotations

import zlib

import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.records.crc64 import (
    CRC32_POLYNOMIAL,
    CRC32C_POLYNOMIAL,
    CRC64_POLYNOMIAL,
    crc64,
    joined_crc,
)


def test_the_check_value_of_the_catalogue() -> None:
    assert crc64(b"123456789") == 0xAE8B14860A799888


@settings(max_examples=50, deadline=None)
@given(first=st.binary(max_size=100), second=st.binary(max_size=100))
def test_checksums_join(first: bytes, second: bytes) -> None:
    both = first + second
    assert crc64(second, crc64(first)) == crc64(both)
    size = len(second)
    assert joined_crc(crc64(first), crc64(second), size, CRC64_POLYNOMIAL, 64) == crc64(both)
    joined = joined_crc(zlib.crc32(first), zlib.crc32(second), size, CRC32_POLYNOMIAL, 32)
    assert joined == zlib.crc32(both)
    joined = joined_crc(crc32c.crc32c(first), crc32c.crc32c(second), size, CRC32C_POLYNOMIAL, 32)
    assert joined == crc32c.crc32c(both)
