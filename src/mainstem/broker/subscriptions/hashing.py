"""The hash that Key_Shared clients and brokers agree on: MurmurHash3, 32 bits, seed 0, without the sign."""

from __future__ import annotations

HASH_SLOTS = 1 << 16  # sticky consumers name ranges of these
_MASK = 0xFFFFFFFF


def murmur3(data: bytes) -> int:
    """31 bits."""
    value = 0
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * 0xCC9E2D51 & _MASK
        word = (word << 15 | word >> 17) * 0x1B873593 & _MASK
        value ^= word
        value = ((value << 13 | value >> 19) * 5 + 0xE6546B64) & _MASK
    rest = data[whole:]
    if rest:
        word = int.from_bytes(rest, "little") * 0xCC9E2D51 & _MASK
        word = (word << 15 | word >> 17) & _MASK
        value ^= word * 0x1B873593 & _MASK
    value ^= len(data)
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    return (value ^ value >> 16) & 0x7FFFFFFF


def slot_of(key: bytes) -> int:
    return murmur3(key) % HASH_SLOTS
