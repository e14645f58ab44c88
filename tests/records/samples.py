"""Records to test with, and the two independent codecs to test against."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from aiokafka.record import default_records as aiokafka_records
from hypothesis import strategies as st

from mainstem.records.compression import CODECS, Codec
from mainstem.records.decoding import StoredRecord
from mainstem.records.header import stamp

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own, while it loads its schemas
    from kafka.record import default_records as kafka_python_records

NOW_MS = 1_700_000_000_000


class Sample(NamedTuple):
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


blobs = st.one_of(st.none(), st.binary(max_size=12), st.binary(min_size=60, max_size=70))
times = st.one_of(st.integers(NOW_MS - 5, NOW_MS + 5), st.integers(0, 1 << 40), st.integers(0, (1 << 62) - 1))
samples = st.builds(
    Sample,
    times,
    blobs,
    blobs,
    st.lists(st.tuples(st.text(max_size=6), blobs), max_size=3).map(tuple),
)
# Both below and above the size at which kernels are compiled.
sample_lists = st.one_of(
    st.lists(samples, min_size=1, max_size=6), st.lists(samples, min_size=49, max_size=60)
)
codecs = st.sampled_from(CODECS)


def stored(records: Sequence[Sample], base_offset: int) -> list[StoredRecord]:
    """What reading these back must give."""
    return [
        StoredRecord(base_offset + i, r.timestamp_ms, r.key, r.value, r.headers)
        for i, r in enumerate(records)
    ]


def stamped(batch: bytearray, base_offset: int) -> bytearray:
    stamp(batch, base_offset, 0)
    return batch


class Peer(NamedTuple):
    """Another implementation of the format, in pure Python."""

    name: str
    builder: Callable[..., Any]
    reader: Callable[[bytes], Any]
    codecs: tuple[Codec, ...]

    def encode(self, records: Sequence[Sample], codec: Codec, **producer: int) -> bytearray:
        builder = self.builder(
            magic=2,
            compression_type=CODECS.index(codec),
            is_transactional=producer.get("is_transactional", 0),
            producer_id=producer.get("producer_id", -1),
            producer_epoch=producer.get("producer_epoch", -1),
            base_sequence=producer.get("base_sequence", -1),
            batch_size=1 << 30,
        )
        for i, r in enumerate(records):
            assert builder.append(i, r.timestamp_ms, r.key, r.value, list(r.headers)) is not None
        return bytearray(builder.build())

    def decode(self, batch: bytearray) -> list[StoredRecord]:
        reader = self.reader(bytes(batch))
        assert reader.validate_crc()
        return [StoredRecord(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in reader]


AIOKAFKA = Peer(
    "aiokafka",
    aiokafka_records._DefaultRecordBatchBuilderPy,
    aiokafka_records._DefaultRecordBatchPy,
    CODECS,
)
KAFKA_PYTHON = Peer(
    "kafka-python",
    kafka_python_records.DefaultRecordBatchBuilder,
    kafka_python_records.DefaultRecordBatch,
    ("none", "gzip", "snappy", "lz4", "zstd"),
)
PEERS = (AIOKAFKA, KAFKA_PYTHON)
