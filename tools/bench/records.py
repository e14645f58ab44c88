"""The record kernels alone, on one thread: columns to a batch, and batches to Arrow."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from mainstem.records.arrow import decode_slices
from mainstem.records.building import build_batch
from mainstem.records.columns import RecordColumns, Spans, encode_columns
from mainstem.records.header import stamp
from tools.bench.report import Figure, Report, measured

RECORDS = 1000
ROUNDS = 5000
SLICES_A_CALL = 100


def run(scratch: Path, report: Report) -> None:
    values = [os.urandom(100) for _ in range(RECORDS)]
    batch = build_batch(values, timestamps_ms=1_700_000_000_000)
    stamp(batch, 0, 0)
    slices = [batch] * SLICES_A_CALL
    decode_slices(slices)  # compiles on the first call ever, loads from the cache later
    with measured() as span:
        for _ in range(ROUNDS // SLICES_A_CALL):
            rows = decode_slices(slices).num_rows
    if rows != RECORDS * SLICES_A_CALL:
        raise SystemExit(f"{rows} records were decoded, not {RECORDS * SLICES_A_CALL}")
    rate = ROUNDS * RECORDS / span.wall_s
    report.add(Figure("decode 1000 × 100 B batches to Arrow", rate, "rec/s", 8e6, cpu_s=span.cpu_s))

    columns = _columns(values)
    encode_columns(columns)
    with measured() as span:
        for _ in range(ROUNDS):
            encode_columns(columns)
    rate = ROUNDS * RECORDS / span.wall_s
    report.add(Figure("encode columns to 1000 × 100 B batches", rate, "rec/s", 8e6, cpu_s=span.cpu_s))

    with measured() as span:
        for _ in range(ROUNDS // 5):
            build_batch(values, timestamps_ms=1_700_000_000_000)
    rate = ROUNDS // 5 * RECORDS / span.wall_s
    report.add(Figure("build 1000-record batches from bytes objects", rate, "rec/s", cpu_s=span.cpu_s))


def _columns(values: list[bytes]) -> RecordColumns:
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    spans = Spans(np.frombuffer(b"".join(values), np.uint8), starts, lengths)
    return RecordColumns(values=spans, timestamps_ms=np.full(len(values), 1_700_000_000_000, np.int64))
