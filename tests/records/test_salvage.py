"""What is whole of damaged batches: never a wrong record, never a wrong offset, and little else is lost."""

from __future__ import annotations

import random

import pytest

from mainstem.records.building import build_batch
from mainstem.records.header import HEADER_BYTES, BatchHeader, walk
from mainstem.records.salvage import Salvaged, salvage

SIZES = (1, 3, 2, 5, 1)  # records of each batch
TOTAL = sum(SIZES)


def _stored() -> tuple[bytearray, list[tuple[int, int]]]:
    """Batches as they are stored, and where each begins and ends."""
    data, places = bytearray(), []
    for number, size in enumerate(SIZES):
        batch = build_batch([b"%d.%d" % (number, at) * 9 for at in range(size)], timestamps_ms=1)
        places.append((len(data), len(data) + len(batch)))
        data += batch
    return data, places


def test_whole_batches_are_all_at_the_front() -> None:
    data, _ = _stored()
    assert salvage(memoryview(data), TOTAL) == Salvaged(len(data), TOTAL, 0, 0)
    assert salvage(memoryview(data), TOTAL + 1) == Salvaged(0, 0, 0, 0)
    assert salvage(memoryview(b""), 3) == Salvaged(0, 0, 0, 0)


def test_no_single_bit_loses_another_batch_unless_it_hides_where_that_one_begins() -> None:
    whole, places = _stored()
    for number, (start, end) in enumerate(places):
        for at in range(start, end):
            for bit in range(8):
                data = bytearray(whole)
                data[at] ^= 1 << bit
                found = salvage(memoryview(data), TOTAL)
                if at - start < 8 or 12 <= at - start < 16:  # readers write over these
                    assert found == Salvaged(len(data), TOTAL, 0, 0)
                    continue
                assert found[:2] == (start, sum(SIZES[:number]))
                if not 8 <= at - start < 12:  # its length
                    assert found[2:] == (len(data) - end, sum(SIZES[number + 1 :]))
                else:
                    assert found.back_offsets in (0, sum(SIZES[number + 1 :]))


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_damaged_what_is_given_back_is_what_was_there(seed: int) -> None:
    dice = random.Random(seed)
    whole, places = _stored()
    data = bytearray(whole)
    for _ in range(dice.randint(1, 4)):
        start = dice.randrange(len(data))
        end = min(len(data), start + dice.choice((1, 4, HEADER_BYTES, 200)))
        data[start:end] = dice.choice((bytes(end - start), dice.randbytes(end - start)))
    front, front_offsets, back, back_offsets = salvage(memoryview(data), TOTAL)
    edges = [0, *(end for _, end in places)]
    counts = [sum(SIZES[:number]) for number in range(len(SIZES) + 1)]
    assert (front, front_offsets) in zip(edges, counts, strict=True)
    assert (len(data) - back, TOTAL - back_offsets) in zip(edges, counts, strict=True)
    assert front_offsets + back_offsets <= TOTAL
    for piece, stored in (
        (data[:front], whole[:front]),
        (data[len(data) - back :], whole[len(data) - back :]),
    ):
        found = [
            (one.last_offset_delta, one.count, bytes(piece[one.position + 16 : one.end]))
            for one in _walk(piece)
        ]
        assert found == [
            (one.last_offset_delta, one.count, bytes(stored[one.position + 16 : one.end]))
            for one in _walk(stored)
        ]


def _walk(data: bytearray) -> list[BatchHeader]:
    cleared = bytearray(data)
    at = 0
    while at < len(cleared):
        length = int.from_bytes(cleared[at + 8 : at + 12], "big")
        cleared[at : at + 8] = bytes(8)  # what is stamped may be anything
        at += 12 + length
    return list(walk(cleared))
