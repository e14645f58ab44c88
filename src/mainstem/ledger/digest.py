"""The digest of the state: 64 bits that every broker must agree on after the same commands.

Each section has a digest of its own (see section.py); the digest of the ledger is a hash of theirs, in the order of
the registry. So a mismatch can name the sections that differ.

Stream columns are hashed as arrays. Maps and interval sets keep a sum of one hash per element, modulo 2^64: the sum
does not depend on the order of changes, and only elements that changed are hashed again.

The digest is a function of values: never of object identity, nor of whether a value was set or is a default.

Left out, so that the digest does not depend on how commands were split into entries: the position,
ledger time and every time derived from it (their effects show when something expires), and commit ids.

Digests of an older definition, which only development builds recorded, are recognised (OLD_DIGEST in entry.py, the
version in checkpoint.py) and not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import msgspec
import numpy as np
import numpy.typing as npt

MASK = (1 << 64) - 1

_encode = msgspec.msgpack.Encoder().encode

Words = npt.NDArray[np.uint64]


def hash_fields(*fields: object) -> int:
    """64 bits of the fields of one element, msgpack-encoded so that fields cannot run into each other."""
    return int.from_bytes(blake2b(_encode(fields), digest_size=8).digest(), "little")


def scramble(words: Words) -> Words:
    """A cheap bijection of 64-bit words that spreads every input bit (xor-shift and multiply, twice)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def hash_columns(*columns: npt.NDArray[np.integer]) -> Words:
    """64 bits a row, of integer columns of one length."""
    total = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        total = scramble(total + column.astype(np.int64).view(np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    return total


_ODD = (
    0x9E3779B97F4A7C15,
    0xD6E8FEB86659FD93,
    0xA0761D6478BD642F,
)  # one per field, so that equal values in different fields hash differently


def mix(first: int, second: int, third: int, fourth: int) -> int:
    """64 bits of four numbers, far cheaper than `hash_fields`: for maps that change by the thousand."""
    word = (first * _ODD[0] + second * _ODD[1] + third * _ODD[2] + fourth) & MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def mix_many(first: int, second: Words, third: Words, fourth: Words) -> int:
    """The sum of `mix` over rows."""
    fixed = np.uint64(first * _ODD[0] & MASK)
    words = second * np.uint64(_ODD[1]) + third * np.uint64(_ODD[2]) + fourth + fixed
    return int(scramble(words).sum(dtype=np.uint64))


def combine(digests: Mapping[str, int]) -> int:
    """The digest of the whole, from those of its sections by name, in their order."""
    return hash_fields(*digests.items())
