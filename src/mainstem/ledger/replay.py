"""Replay: join runs of small entries, so that a log of a million single appends applies at array speed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.ledger.entry import ENTRY_VERSION, KIND_APPENDS, PLAIN, SLICE, Entry, Rows
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.section import Buffer

# An entry with just one append run begins with these 64 bytes: the entry's header (entry.py), the header of its
# only part, and the header of the run. The slice rows follow.
_PLAIN_HEAD = np.dtype(
    [
        ("version", "<u2"),
        ("flags", "<u2"),
        ("parts", "<u4"),
        ("time_ms", "<i8"),
        ("broker", "<u4"),
        ("broker_epoch", "<u4"),
        ("commit_id", "<u8"),
        ("digest_position", "<u8"),
        ("digest", "<u8"),
        ("kind", "<u4"),
        ("part_length", "<u4"),
        ("slices", "<u4"),
        ("records", "<u4"),
    ]
)
_HEAD_BYTES = _PLAIN_HEAD.itemsize
_RUN_HEAD_BYTES = 8


@dataclass(frozen=True, slots=True)
class PlainRun:
    """Consecutive PLAIN entries joined; hand `rows` and the rest to `Ledger.apply_plain`."""

    rows: Rows  # of SLICE
    slices: npt.NDArray[np.int64]  # rows of each entry
    broker: int
    broker_epoch: int
    last_commit_id: int
    time_ms: int  # the latest
    entries: int


def merge_plain(entries: Sequence[Buffer], ledger: Ledger) -> Iterator[PlainRun | Entry]:
    """The work of `entries` in order, for `ledger` to apply from its present position on.

    Raises what Entry.decode raises when it reaches an entry that cannot be read."""
    heads = _heads(entries)
    whole = _is_plain(heads, entries)
    cuts = np.flatnonzero(_cuts(heads, whole, ledger)).tolist()
    last_ids = {(member.broker, member.epoch): member.last_commit_id for member in ledger.brokers}
    for start, stop in pairwise([*cuts, len(entries)]):
        source = (int(heads["broker"][start]), int(heads["broker_epoch"][start]))
        if whole[start]:
            # The ledger detects repeated commit ids one entry at a time.
            seen = last_ids.get(source, -1) - int(heads["commit_id"][start]) + 1
            repeated = min(max(0, seen), stop - start)
            yield from map(Entry.decode, entries[start : start + repeated])
            if start + repeated < stop:
                yield _join(entries, heads, start + repeated, stop)
        else:
            yield Entry.decode(entries[start])
        last_ids[source] = max(last_ids.get(source, -1), int(heads["commit_id"][stop - 1]))


def apply_all(entries: Sequence[Buffer], ledger: Ledger) -> None:
    """Apply encoded entries and ignore their outcomes."""
    for work in merge_plain(entries, ledger):
        if isinstance(work, Entry):
            ledger.apply(work)
        else:
            ledger.apply_plain(
                work.rows,
                broker=work.broker,
                broker_epoch=work.broker_epoch,
                last_commit_id=work.last_commit_id,
                time_ms=work.time_ms,
                entries=work.entries,
            )


def _heads(entries: Sequence[Buffer]) -> Rows:
    if min(map(len, entries), default=_HEAD_BYTES) < _HEAD_BYTES:
        joined = b"".join([bytes(entry[:_HEAD_BYTES]).ljust(_HEAD_BYTES, b"\0") for entry in entries])
    else:
        joined = b"".join([entry[:_HEAD_BYTES] for entry in entries])
    return np.frombuffer(joined, _PLAIN_HEAD)


def _is_plain(heads: Rows, entries: Sequence[Buffer]) -> npt.NDArray[np.bool_]:
    """Which entries are one whole append run without record rows or a digest."""
    lengths = np.fromiter(map(len, entries), np.int64, len(entries))
    rows = heads["slices"].astype(np.int64) * SLICE.itemsize
    plain: npt.NDArray[np.bool_] = (
        (heads["version"] == ENTRY_VERSION)
        & (heads["flags"] == PLAIN)
        & (heads["parts"] == 1)
        & (heads["kind"] == KIND_APPENDS)
        & (heads["records"] == 0)
        & (heads["part_length"] == rows + _RUN_HEAD_BYTES)
        & (lengths == rows + _HEAD_BYTES)
    )
    return plain


def _cuts(heads: Rows, whole: npt.NDArray[np.bool_], ledger: Ledger) -> npt.NDArray[np.bool_]:
    """Where an entry cannot be joined to the one before it."""
    cuts: npt.NDArray[np.bool_] = (ledger.position + np.arange(len(heads))) % limits.DIGEST_EVERY_COMMITS == 0
    cuts[:1] = True
    cuts |= ~whole
    cuts[1:] |= ~whole[:-1]
    for name in ("broker", "broker_epoch"):
        cuts[1:] |= heads[name][1:] != heads[name][:-1]
    cuts[1:] |= heads["commit_id"][1:] != heads["commit_id"][:-1] + np.uint64(1)
    # Producer times are in steps: entries of one step give the same state whether joined or not.
    steps = (
        np.maximum.accumulate(np.maximum(heads["time_ms"], ledger.time_ms)) // limits.PRODUCER_TIME_STEP_MS
    )
    cuts[1:] |= steps[1:] != steps[:-1]
    return cuts


def _join(entries: Sequence[Buffer], heads: Rows, start: int, stop: int) -> PlainRun:
    joined = b"".join([entry[_HEAD_BYTES:] for entry in entries[start:stop]])
    last = heads[stop - 1]
    return PlainRun(
        np.frombuffer(joined, SLICE),
        heads["slices"][start:stop].astype(np.int64),
        int(last["broker"]),
        int(last["broker_epoch"]),
        int(last["commit_id"]),
        int(heads["time_ms"][start:stop].max()),
        stop - start,
    )
