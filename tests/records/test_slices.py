"""Stored slices: few reads, and of damaged ones never a wrong record, never a wrong offset, and little else lost."""

from __future__ import annotations

import random

import pytest
from crc32c import crc32c

from mainstem.records.building import build_batch
from mainstem.records.header import HEADER_BYTES, BatchHeader, walk
from mainstem.records.slices import SliceRun, coalesce, cut, is_intact, salvage

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


def _salvaged(data: bytearray | bytes, offsets: int) -> tuple[int, int, int, int]:
    """Bytes and offsets before the loss, bytes and offsets after it."""
    found = salvage(memoryview(data), 100, offsets)
    assert bytes(found.before) == data[: len(found.before)]
    assert bytes(found.after) == data[len(data) - len(found.after) :]
    return len(found.before), found.first - 100, len(found.after), 100 + offsets - found.end


def test_whole_batches_are_all_at_the_front() -> None:
    data, _ = _stored()
    assert _salvaged(data, TOTAL) == (len(data), TOTAL, 0, 0)
    assert _salvaged(data, TOTAL + 1) == (0, 0, 0, 0)
    assert _salvaged(b"", 3) == (0, 0, 0, 0)


def test_no_single_bit_loses_another_batch_unless_it_hides_where_that_one_begins() -> None:
    whole, places = _stored()
    for number, (start, end) in enumerate(places):
        for at in range(start, end):
            for bit in range(8):
                data = bytearray(whole)
                data[at] ^= 1 << bit
                found = _salvaged(data, TOTAL)
                if at - start < 8 or 12 <= at - start < 16:  # readers write over these
                    assert found == (len(data), TOTAL, 0, 0)
                    continue
                assert found[:2] == (start, sum(SIZES[:number]))
                if not 8 <= at - start < 12:  # its length
                    assert found[2:] == (len(data) - end, sum(SIZES[number + 1 :]))
                else:
                    assert found[3] in (0, sum(SIZES[number + 1 :]))


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_damaged_what_is_given_back_is_what_was_there(seed: int) -> None:
    dice = random.Random(seed)
    whole, places = _stored()
    data = bytearray(whole)
    for _ in range(dice.randint(1, 4)):
        start = dice.randrange(len(data))
        end = min(len(data), start + dice.choice((1, 4, HEADER_BYTES, 200)))
        data[start:end] = dice.choice((bytes(end - start), dice.randbytes(end - start)))
    front, front_offsets, back, back_offsets = _salvaged(data, TOTAL)
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


def test_one_read_covers_neighbours_within_the_gap() -> None:
    slices = [(0, 10), (10, 5), (20, 5), (26, 4)]
    assert coalesce(slices, 4) == [SliceRun(0, 2, 0, 15), SliceRun(2, 4, 20, 10)]
    assert coalesce(slices, 5) == [SliceRun(0, 4, 0, 30)]
    assert coalesce([(20, 5), (0, 10)], 100) == [SliceRun(0, 1, 20, 5), SliceRun(1, 2, 0, 10)]
    assert coalesce([], 4) == []


def test_a_read_ends_where_the_next_block_begins() -> None:
    slices = [(90, 20), (110, 10), (120, 10)]
    assert coalesce(slices, 0, 100) == [SliceRun(0, 1, 90, 20), SliceRun(1, 3, 110, 20)]


def test_slices_are_cut_from_the_blocks_that_were_read() -> None:
    stored = bytes(range(100))
    slices = [(5, 10), (15, 5), (60, 10)]
    runs = coalesce(slices, 8)
    blocks = [stored[run.start : run.start + run.length] for run in runs]
    found = list(cut(runs, blocks, slices))
    assert [bytes(slice) for slice in found] == [stored[start : start + length] for start, length in slices]
    short = list(cut(runs, [blocks[0][:12], blocks[1]], slices))
    assert [len(slice) for slice in short] == [10, 2, 10]
    assert is_intact(found[1], 5, crc32c(stored[15:20]))
    assert not is_intact(short[1], 5, crc32c(stored[15:17]))
    assert not is_intact(found[1], 5, crc32c(stored[15:20]) ^ 1)
