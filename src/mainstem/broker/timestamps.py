"""Timestamps of records: topics may reject records that are too old or too new.

The header of a batch decides, so that batches are not decoded: the time of its first record is compared with the
earliest time allowed, and the time of its newest record with the latest.
"""

from __future__ import annotations

import numpy as np

from mainstem import limits
from mainstem.errors import InvalidBatch, InvalidTimestamp
from mainstem.ledger.config import TopicConfig
from mainstem.records.decoding import record_sizes_and_times
from mainstem.records.header import Slice, walk

_NO_TIME = -1  # a record without a timestamp


def check_times(batches: Slice, config: TopicConfig, now_ms: int) -> None:
    """Raises InvalidTimestamp. For topics that limit the times of records."""
    earliest = now_ms - config.timestamp_before_max_ms
    latest = now_ms + config.timestamp_after_max_ms
    for header in walk(batches):
        first, newest = header.base_timestamp, header.max_timestamp
        if newest > latest:
            reason = f"a record has the timestamp {newest}, after {latest}: message.timestamp.after.max.ms"
        elif first < earliest and first != _NO_TIME:
            reason = f"a record has the timestamp {first}, before {earliest}: message.timestamp.before.max.ms"
        else:
            continue
        raise InvalidTimestamp(
            f"{reason} of the topic does not allow it", _outside(batches, earliest, latest)
        )


def _outside(batches: Slice, earliest: int, latest: int) -> list[int]:
    """The numbers of the records outside the limits, or none if they cannot be decoded."""
    try:
        _, times = record_sizes_and_times(memoryview(batches))
    except InvalidBatch:
        return []
    outside = np.flatnonzero(((times < earliest) & (times != _NO_TIME)) | (times > latest))
    numbers: list[int] = outside[: limits.INVALID_RECORDS_NAMED_MAX].tolist()
    return numbers
