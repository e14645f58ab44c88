"""The format as two independent implementations read and write it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.records.arrow import decode_slices
from mainstem.records.building import build_batch
from mainstem.records.compression import CODECS, Codec
from mainstem.records.decoding import StoredRecord, decode_records
from mainstem.records.header import check_slice

from .samples import AIOKAFKA, NOW_MS, PEERS, Peer, Sample, codecs, sample_lists, stamped, stored

offsets = st.integers(0, 1 << 40)


def _build(records: list[Sample], codec: Codec) -> bytearray:
    return build_batch(
        [r.value for r in records],
        keys=[r.key for r in records],
        headers=[r.headers for r in records],
        timestamps_ms=[r.timestamp_ms for r in records],
        codec=codec,
    )


def _arrow_records(*buffers: bytearray) -> list[StoredRecord]:
    rows = decode_slices(buffers).to_pylist()
    return [
        StoredRecord(
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in rows
    ]


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
@given(records=sample_lists, codec=codecs, base=offsets)
@settings(max_examples=100, deadline=None)
def test_what_we_write_a_peer_reads(peer: Peer, records: list[Sample], codec: Codec, base: int) -> None:
    if codec not in peer.codecs:
        codec = "none"
    batch = stamped(_build(records, codec), base)
    assert peer.decode(batch) == stored(records, base)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
@given(records=sample_lists, codec=codecs, base=offsets)
@settings(max_examples=100, deadline=None)
def test_what_a_peer_writes_we_read(peer: Peer, records: list[Sample], codec: Codec, base: int) -> None:
    if codec not in peer.codecs:
        codec = "none"
    batch = stamped(peer.encode(records, codec), base)
    facts = check_slice(memoryview(batch), batch_bytes_max=1 << 20)
    assert facts.count == len(records)
    assert facts.max_timestamp == max(r.timestamp_ms for r in records)
    assert list(decode_records(batch)) == stored(records, base)
    assert _arrow_records(batch) == stored(records, base)


@given(records=sample_lists)
@settings(max_examples=60, deadline=None)
def test_uncompressed_batches_are_the_same_bytes_as_a_peers(records: list[Sample]) -> None:
    assert stamped(_build(records, "none"), 7) == stamped(AIOKAFKA.encode(records, "none"), 7)


@given(slices=st.lists(st.tuples(sample_lists, codecs), min_size=1, max_size=4), base=offsets)
@settings(max_examples=40, deadline=None)
def test_many_slices_of_many_batches_decode_as_one_run(
    slices: list[tuple[list[Sample], Codec]], base: int
) -> None:
    expected: list[StoredRecord] = []
    buffers = []
    for records, codec in slices:
        buffer = bytearray()
        for _ in range(2):
            buffer += stamped(_build(records, codec), base)
            expected += stored(records, base)
            base += len(records)
        buffers.append(buffer)
    assert _arrow_records(*buffers) == expected
    assert [record for buffer in buffers for record in decode_records(buffer)] == expected


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("copies", [1, 60])
def test_huge_values_pass_both_ways(codec: Codec, copies: int) -> None:
    big = bytes(range(256)) * (4096 // copies)
    records = [Sample(NOW_MS + i, b"k" * 9000, big + b"%d" % i, (("h" * 3000, big),)) for i in range(copies)]
    assert AIOKAFKA.decode(stamped(_build(records, codec), 3)) == stored(records, 3)
    batch = stamped(AIOKAFKA.encode(records, codec), 3)
    assert _arrow_records(batch) == list(decode_records(batch)) == stored(records, 3)
