"""CRC32C of concatenated bytes, from the checksums of their parts.

A CRC is linear: the CRC of A followed by B is the CRC of A extended by as many zero bytes as B has, xor the CRC of B.
The effect of a zero byte on a checksum is a matrix over GF(2); its square is the effect of two zero bytes, and so on.
"""

from __future__ import annotations

from functools import cache

_POLYNOMIAL = 0x82F6_3B78  # CRC-32C, lowest bit first
_COUNT_BITS = 32

_Bytewise = tuple[list[int], list[int], list[int], list[int]]


def joined(first: int, second: int, second_bytes: int) -> int:
    """The checksum of two byte strings concatenated, from their checksums and the length of the second."""
    operators = _operators()
    power = 0
    while second_bytes:
        if second_bytes & 1:
            a, b, c, d = operators[power]
            first = a[first & 255] ^ b[first >> 8 & 255] ^ c[first >> 16 & 255] ^ d[first >> 24]
        second_bytes >>= 1
        power += 1
    return first ^ second


@cache
def _operators() -> list[_Bytewise]:
    """The effect of 1, 2, 4, … zero bytes on a checksum, by its bytes. Takes a few ms on first use."""
    columns = [_after_zero_byte(1 << bit) for bit in range(32)]
    operators = [_bytewise(columns)]
    while len(operators) < _COUNT_BITS:
        a, b, c, d = operators[-1]
        columns = [a[k & 255] ^ b[k >> 8 & 255] ^ c[k >> 16 & 255] ^ d[k >> 24] for k in columns]
        operators.append(_bytewise(columns))
    return operators


def _after_zero_byte(crc: int) -> int:
    for _ in range(8):
        crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc


def _bytewise(columns: list[int]) -> _Bytewise:
    """A matrix as four lookup tables, one for each byte of a checksum."""
    a, b, c, d = ([0] for _ in range(4))
    for byte, table in enumerate((a, b, c, d)):
        for bit in range(8):
            table += [columns[8 * byte + bit] ^ value for value in table]
    return a, b, c, d


def step_tables() -> list[int]:
    """Eight tables of 256 checksums, one after another: of each byte, followed by 0 to 7 zero bytes."""
    tables = [_after_zero_byte(byte) for byte in range(256)]
    for at in range(7 * 256):
        tables.append(tables[tables[at] & 255] ^ tables[at] >> 8)
    return tables
