"""CRC-64/NVME, and checksums of concatenated bytes for any reflected CRC.

A CRC is linear: the CRC of A followed by B is the CRC of A extended by as many zero bytes as B has, xor the CRC of B.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from mainstem.records.compiled import compiled, octets

CRC32_POLYNOMIAL = 0xEDB8_8320  # lowest bit first, as all of these
CRC32C_POLYNOMIAL = 0x82F6_3B78
CRC64_POLYNOMIAL = 0x9A6C_9329_AC4B_C9B5
_MASK = (1 << 64) - 1
_SLICES = 8

Tables = npt.NDArray[np.uint64]


def crc64(data: bytes, value: int = 0) -> int:
    """The checksum of `data`, continued from that of the bytes before it."""
    return int(compiled(extend)(octets(data), _tables(), np.uint64(value ^ _MASK))) ^ _MASK


def extend(data: npt.NDArray[np.uint8], tables: Tables, crc: np.uint64) -> np.uint64:
    """Kernel: eight bytes a step, each by its own table."""
    at, end = 0, len(data)
    while end - at >= 8:
        word = np.uint64(0)
        for place in range(8):
            word |= np.uint64(data[at + place]) << np.uint64(8 * place)
        word ^= crc
        crc = np.uint64(0)
        for place in range(8):
            crc ^= tables[7 - place, (word >> np.uint64(8 * place)) & np.uint64(255)]
        at += 8
    while at < end:
        crc = tables[0, (crc ^ np.uint64(data[at])) & np.uint64(255)] ^ (crc >> np.uint64(8))
        at += 1
    return crc


@cache
def _tables() -> Tables:
    tables = np.zeros((_SLICES, 256), np.uint64)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (CRC64_POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for number in range(1, _SLICES):
        before = tables[number - 1]
        tables[number] = tables[0, before & np.uint64(255)] ^ (before >> np.uint64(8))
    tables.flags.writeable = False
    return tables


def joined_crc(first: int, second: int, second_bytes: int, polynomial: int, bits: int) -> int:
    """The checksum of two byte strings concatenated, from their checksums and the length of the second."""
    return _times(_zeros(second_bytes, polynomial, bits), first) ^ second


def _times(matrix: tuple[int, ...], vector: int) -> int:
    total = 0
    for column in matrix:
        if vector & 1:
            total ^= column
        vector >>= 1
    return total


@lru_cache(maxsize=64)
def _zeros(count: int, polynomial: int, bits: int) -> tuple[int, ...]:
    """The effect of `count` zero bytes on a checksum, as a matrix over GF(2)."""
    result = tuple(1 << bit for bit in range(bits))
    power = tuple(_after_byte(1 << bit, polynomial) for bit in range(bits))
    while count:
        if count & 1:
            result = tuple(_times(power, column) for column in result)
        power = tuple(_times(power, column) for column in power)
        count >>= 1
    return result


def _after_byte(crc: int, polynomial: int) -> int:
    for _ in range(8):
        crc = crc >> 1 ^ (polynomial if crc & 1 else 0)
    return crc
