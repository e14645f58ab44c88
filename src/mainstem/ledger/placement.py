"""Placement: which offsets the slices of an append run take.

There are three ways to the same result. Rows without a producer on streams without caps or tracking ("plain") are
placed as arrays. All other rows, and plain rows too few for arrays to pay, are placed one by one in order.
Streams do not influence each other, so a mixed run may place its plain streams first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mainstem.ledger.appends import AppendCode, AppendOutcome
from mainstem.ledger.entry import (
    NO_RECORDS,
    SLICE_JOINS,
    SLICE_KEYED,
    SLICE_PACK,
    SLICE_RESUMES,
    SLICE_TRACKED,
    SLICE_TRANSACTIONAL,
    Rows,
)
from mainstem.ledger.idempotency import IdempotencyKeys, key_number
from mainstem.ledger.producers import Producers
from mainstem.ledger.streams import FULL, Streams
from mainstem.ledger.transactions import Transactions

_FEW = 32  # rows below which a Python loop is cheaper than array calls
_CHUNK_ROWS = 32_768  # placed at once, so that their columns stay in the processor's cache

_OK = int(AppendCode.OK)
_NO_STREAM = int(AppendCode.NO_STREAM)
_FULL = int(AppendCode.FULL)
_INVALID = int(AppendCode.INVALID_TRANSACTION)
_DUPLICATE = int(AppendCode.DUPLICATE)
_UNKNOWN = int(AppendCode.PRODUCER_UNKNOWN)

_ALL_OK: npt.NDArray[np.uint8] = np.zeros(_CHUNK_ROWS, np.uint8)
_ALL_OK.flags.writeable = False
_FEW_OK = [_ALL_OK[:rows] for rows in range(_FEW)]

Int64s = npt.NDArray[np.int64]
Fields = tuple[int, ...]  # one slice row, unpacked


def refused(rows: int, code: AppendCode) -> AppendOutcome:
    """The outcome of a run that is rejected as a whole."""
    return AppendOutcome(np.full(rows, -1, np.int64), np.full(rows, int(code), np.uint8))


class AppendPlacer:
    """Places append runs into the streams, and checks their producers and transactions."""

    def __init__(
        self, streams: Streams, producers: Producers, transactions: Transactions, keys: IdempotencyKeys
    ) -> None:
        self._streams = streams
        self._producers = producers
        self._transactions = transactions
        self._keys = keys

    def place(self, slices: Rows, records: Rows, time_ms: int) -> AppendOutcome:
        """Append every slice that passes the checks."""
        if len(slices) < _FEW:
            return self._place_few(slices, records, time_ms)
        if len(slices) <= _CHUNK_ROWS:
            return self._place_many(slices, records, time_ms)
        outcomes = []
        used = 0
        for start in range(0, len(slices), _CHUNK_ROWS):
            chunk = slices[start : start + _CHUNK_ROWS]
            tracked = _tracked_counts(chunk) if len(records) else 0
            outcomes.append(self._place_many(chunk, records[used : used + tracked], time_ms))
            used += tracked
        return AppendOutcome(
            np.concatenate([outcome.base for outcome in outcomes]),
            np.concatenate([outcome.code for outcome in outcomes]),
        )

    def place_lone(self, fields: Fields, time_ms: int) -> tuple[int, int]:
        """As `place` of one slice without record rows: (first offset, code)."""
        streams, stream = self._streams, fields[0]
        if fields[5] < 0 and not fields[8] and stream < streams.count and streams.plain_view[stream]:
            return streams.append_plain(stream, fields[1], fields[9], fields[4]), _OK
        return self._place_one(fields, NO_RECORDS, time_ms)

    def _place_few(self, slices: Rows, records: Rows, time_ms: int) -> AppendOutcome:
        streams = self._streams
        plain, count = streams.plain_view, streams.count
        bases, codes, used, all_ok = [], [], 0, True
        for fields in SLICE_PACK.iter_unpack(slices.tobytes()):
            stream = fields[0]
            if fields[5] < 0 and not fields[8] and stream < count and plain[stream]:
                bases.append(streams.append_plain(stream, fields[1], fields[9], fields[4]))
                codes.append(_OK)
                continue
            tracked = fields[1] if fields[8] & SLICE_TRACKED else 0
            base, code = self._place_one(fields, records[used : used + tracked], time_ms)
            used += tracked
            bases.append(base)
            codes.append(code)
            all_ok = all_ok and not code
        code_array = _FEW_OK[len(codes)] if all_ok else np.array(codes, np.uint8)
        return AppendOutcome(np.array(bases, np.int64), code_array)

    def _place_many(self, slices: Rows, records: Rows, time_ms: int) -> AppendOutcome:
        stream = np.ascontiguousarray(slices["stream"])
        known = stream < self._streams.count
        if known.all():
            special = ~self._streams.plain[stream]
        else:
            special = ~(known & self._streams.plain[np.where(known, stream, 0)])
        special |= (slices["producer"] >= 0) | ((slices["flags"] & SLICE_KEYED) != 0)
        if not special.any():
            return AppendOutcome(place_plain(self._streams, stream, slices), _ALL_OK[: len(slices)])
        # A stream with one special row is placed row by row, so that its order is kept.
        special = np.isin(stream, stream[special])
        base, code = np.empty(len(slices), np.int64), np.zeros(len(slices), np.uint8)
        rest = np.flatnonzero(~special)
        if len(rest):
            base[rest] = place_plain(self._streams, stream[rest], slices[rest])
        self._place_special(slices, records, special, base, code, time_ms)
        return AppendOutcome(base, code)

    def _place_special(
        self,
        slices: Rows,
        records: Rows,
        special: npt.NDArray[np.bool_],
        base: Int64s,
        code: npt.NDArray[np.uint8],
        time_ms: int,
    ) -> None:
        rows = np.flatnonzero(special)
        chosen = slices[rows]
        if len(records):
            taken = np.where(slices["flags"] & SLICE_TRACKED, slices["count"], 0).cumsum(dtype=np.int64)
            ends = taken[rows].tolist()
        else:
            ends = [0] * len(rows)
        bases, codes = [], []
        for fields, end in zip(SLICE_PACK.iter_unpack(chosen.tobytes()), ends, strict=True):
            tracked = fields[1] if fields[8] & SLICE_TRACKED else 0
            one_base, one_code = self._place_one(fields, records[end - tracked : end], time_ms)
            bases.append(one_base)
            codes.append(one_code)
        base[rows] = bases
        code[rows] = codes

    def _place_one(self, fields: Fields, rows: Rows, time_ms: int) -> tuple[int, int]:
        """Place one slice of any kind: (first offset, code)."""
        stream, count, _, _, max_timestamp, producer, sequence, epoch, flags, size, _ = fields
        streams = self._streams
        plain = stream < streams.count and streams.plain_view[stream]
        if not plain and (not streams.exists(stream) or streams.ephemeral(stream)):
            # Offsets of an ephemeral stream are assigned in memory: the log does not contain such a stream.
            return -1, _NO_STREAM
        keyed = flags & SLICE_KEYED
        if keyed:
            key = key_number(producer, sequence, epoch)
            original = self._keys.find(stream, key, time_ms, int(streams.key_window_ms[stream]))
            if original is not None:
                return original[0], _DUPLICATE
        elif producer >= 0:
            code, base = self._judge(fields)
            if code:
                return base, code
        if plain:
            base = streams.append_plain(stream, count, size, max_timestamp)
        else:
            base = streams.append(
                stream,
                count,
                size,
                max_timestamp,
                rows if flags & SLICE_TRACKED and len(rows) == count else None,
            )
            if base == FULL:
                return -1, _FULL
        if keyed:
            self._keys.record(stream, key, base, count, time_ms, streams.key_window_ms)
        elif producer >= 0:
            self._producers.record(producer, stream, epoch, sequence, count, base, time_ms)
            if flags & SLICE_TRANSACTIONAL:
                if flags & SLICE_JOINS:
                    self._transactions.join(producer, stream, time_ms)
                streams.transactions.wrote(stream, producer, base, count, size)
        return base, _OK

    def _judge(self, fields: Fields) -> tuple[int, int]:
        """Whether a producer's slice may be appended: (code, base), the base only of a duplicate."""
        stream, count, _, _, _, producer, sequence, epoch, flags, _, _ = fields
        code, base = self._producers.judge(producer, stream, epoch, sequence, count)
        if code == _DUPLICATE:
            # A client that abandons a transaction with batches in flight may reuse their sequence numbers. Those
            # batches were aborted: to call the new ones duplicates would lose them silently.
            return (_INVALID, -1) if self._streams.was_aborted(stream, base) else (code, base)
        if code == _UNKNOWN and flags & SLICE_RESUMES:
            code = _OK
        barred = self._transactions.judge(
            producer,
            epoch,
            stream,
            transactional=bool(flags & SLICE_TRANSACTIONAL),
            joins=bool(flags & SLICE_JOINS),
        )
        return barred or code, -1


def place_plain(streams: Streams, stream: npt.NDArray[np.uint32], slices: Rows) -> Int64s:
    """Offsets of plain rows, which are all appended. `stream` is the contiguous stream column of `slices`."""
    count = slices["count"].astype(np.int64)
    first = stream[0]
    if first == stream[-1] and (stream == first).all():
        ends = count.cumsum()
        base: Int64s = ends - count
        base += streams.end[first]
        streams.end[first] += ends[-1]
        streams.records[first] += ends[-1]
        streams.bytes[first] += slices["size"].sum(dtype=np.int64)
        streams.max_timestamp[first] = max(streams.max_timestamp[first], slices["max_timestamp"].max())
        return base
    order = _stable_order(stream)
    sorted_streams = stream[order]
    starts = np.flatnonzero(np.concatenate(([True], sorted_streams[1:] != sorted_streams[:-1])))
    touched = sorted_streams[starts]
    count = count[order]
    ends = count.cumsum()
    before = ends - count
    totals = np.add.reduceat(count, starts)
    widths = np.diff(starts, append=len(stream))
    base = np.empty(len(stream), np.int64)
    base[order] = before + np.repeat(streams.end[touched] - before[starts], widths)
    streams.end[touched] += totals
    streams.records[touched] += totals
    streams.bytes[touched] += np.add.reduceat(slices["size"][order], starts, dtype=np.int64)
    latest = np.maximum.reduceat(slices["max_timestamp"][order], starts)
    streams.max_timestamp[touched] = np.maximum(streams.max_timestamp[touched], latest)
    return base


def _stable_order(stream: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """A stable argsort: (stream, index) pairs packed in words sort faster than numpy's stable sort."""
    keys = stream.astype(np.int64) << 20 | np.arange(len(stream))
    keys.sort()
    order: Int64s = keys & ((1 << 20) - 1)
    return order


def _tracked_counts(slices: Rows) -> int:
    tracked = (slices["flags"] & SLICE_TRACKED) != 0
    return int(slices["count"][tracked].sum(dtype=np.int64))
