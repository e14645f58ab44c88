"""Listings of buckets: a page takes its turn, however many keys it looks at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mainstem.broker.buckets.service import KEYS_PER_TURN, ObjectVersion, collapsed

_KEYS = [f"k/{number:06}" for number in range(3 * KEYS_PER_TURN)]


class _Listed:
    """A bucket, and how many keys were read of it between two turns."""

    def __init__(self, *, marker: bool = False) -> None:
        self._version = ObjectVersion("v", 0, marker=marker)
        self._read = 0
        self.most = 0
        self.turns = 0

    def listed_from(self, start: str) -> Iterator[tuple[str, ObjectVersion | None]]:
        for key in _KEYS:
            if key >= start:
                self._read += 1
                self.most = max(self.most, self._read)
                yield key, self._version

    async def turn(self) -> None:
        self.turns += 1
        self._read = 0


@pytest.mark.parametrize("marker", [False, True])
async def test_a_listing_takes_turns_over_keys_that_it_does_not_show(marker: bool) -> None:
    bucket = _Listed(marker=marker)
    found = await collapsed(bucket.listed_from, "", "", "", 10, lambda key: marker, bucket.turn)
    assert (found.objects, found.next) == ([], "")
    assert bucket.turns >= 2
    assert bucket.most <= KEYS_PER_TURN


async def test_a_listing_misses_nothing_at_its_turns() -> None:
    bucket = _Listed()
    found = await collapsed(bucket.listed_from, "", "", "", len(_KEYS), lambda key: True, bucket.turn)
    assert [key for key, _ in found.objects] == _KEYS
