"""Positions of each record's "node" and "meta" headers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mainstem.records import kernels
from mainstem.records.index import Integers, RecordIndex

NODE = "node"
META = "meta"
TRACE = "traceparent"


class ReservedHeaders(NamedTuple):
    """One column a record of an index; a length of -1 means the header is missing. All four are rows of `table`."""

    table: Integers
    node_at: Integers
    node_length: Integers
    meta_at: Integers
    meta_length: Integers


_NONE = np.full((4, 1), -1, np.int64)
_NONE_OF_ONE = ReservedHeaders(_NONE, *_NONE)


def find_reserved_headers(index: RecordIndex) -> ReservedHeaders:
    if len(index) == 1 and not index.headers:
        return _NONE_OF_ONE
    table = np.full((4, len(index)), -1, np.int64)
    if index.headers:
        index.run(kernels.find_header, index.fields, NODE.encode(), table[0], table[1])
        index.run(kernels.find_header, index.fields, META.encode(), table[2], table[3])
    return ReservedHeaders(table, *table)


def find_trace(index: RecordIndex) -> Integers:
    """Position and length of each record's trace context, as two rows."""
    table = np.full((2, len(index)), -1, np.int64)
    if index.headers:
        index.run(kernels.find_header, index.fields, TRACE.encode(), table[0], table[1])
    return table


def nodes_among(
    index: RecordIndex, reserved_headers: ReservedHeaders, nodes: Sequence[bytes]
) -> npt.NDArray[np.bool_]:
    """A mask of the records that come from one of these nodes."""
    among = np.zeros(len(index), np.bool_)
    for node in nodes:
        index.run(kernels.mark_equal, reserved_headers.node_at, reserved_headers.node_length, node, among)
    return among
