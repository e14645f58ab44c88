"""Batches of one plain record, decoded without the general decoder."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.records.building import build_batch
from mainstem.records.decoding import decode_records, lone_record, lone_values
from mainstem.records.header import stamp
from mainstem.records.interpreted import build_lone

VALUES = st.one_of(st.binary(max_size=300), st.integers(0, 40_000).map(bytes))


def stamped(batches: list[bytearray]) -> memoryview:
    joined = bytearray().join(batches)
    stamp(joined, 5, 0)
    return memoryview(joined)


@settings(deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=5), st.integers(5, 10))
def test_lone_batches_decode_as_the_general_decoder_decodes_them(values: list[bytes], offset: int) -> None:
    slice = stamped([build_lone(value, 7) for value in values])
    decoded = [(record.offset, record.value) for record in decode_records(slice, offset)]
    assert lone_values(slice, offset) == decoded


@settings(deadline=None)
@given(st.none() | VALUES, st.none() | st.binary(max_size=200), st.integers(0, 1 << 62))
def test_a_lone_record_decodes_as_the_general_decoder_decodes_it(
    value: bytes | None, key: bytes | None, time: int
) -> None:
    slice = stamped([build_batch([value], keys=[key], timestamps_ms=time)])
    assert lone_record(slice) == next(decode_records(slice))


@settings(deadline=None)
@given(VALUES)
def test_a_lone_batch_is_what_build_batch_makes(value: bytes) -> None:
    assert build_lone(value, 7) == build_batch([value], timestamps_ms=7)


@pytest.mark.parametrize(
    "other",
    [
        build_batch([b"a", b"b"], timestamps_ms=7),
        build_batch([None], timestamps_ms=7),
        build_batch([b"a"], keys=[b"k"], timestamps_ms=7),
        build_batch([b"a"], headers=[[("h", b"x")]], timestamps_ms=7),
        build_batch([b"a" * 500], timestamps_ms=7, codec="gzip"),
        build_batch(
            [b"a"], timestamps_ms=7, producer=1, producer_epoch=0, base_sequence=0, transactional=True
        ),
    ],
)
def test_other_batches_are_left_to_the_general_decoder(other: bytearray) -> None:
    assert lone_values(stamped([build_lone(b"a", 7), other]), 5) is None


@pytest.mark.parametrize(
    "other",
    [
        build_batch([b"a", b"b"], timestamps_ms=7),
        build_batch([b"a"], headers=[[("h", b"x")]], timestamps_ms=7),
        build_batch([b"a" * 500], timestamps_ms=7, codec="gzip"),
        bytearray().join([build_lone(b"a", 7)] * 2),
        build_lone(b"a" * 200, 7)[:-1] + b"\x01",
        bytearray(70),
    ],
)
def test_a_lone_record_has_a_batch_of_its_own_and_no_headers(other: bytearray) -> None:
    assert lone_record(memoryview(other)) is None
