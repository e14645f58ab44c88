"""Where the headers "node" and "meta" of each record stand."""

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
    """One row a record of an index; a length of -1 means there is none. All four are rows of `table`."""

    table: Integers
    node_at: Integers
    node_length: Integers
    meta_at: Integers
    meta_length: Integers


def find_reserved_headers(index: RecordIndex) -> ReservedHeaders:
    table = np.full((4, len(index)), -1, np.int64)
    if index.headers:
        index.run(kernels.find_header, index.fields, NODE.encode(), table[0], table[1])
        index.run(kernels.find_header, index.fields, META.encode(), table[2], table[3])
    return ReservedHeaders(table, *table)


def find_trace(index: RecordIndex) -> Integers:
    """Where each record's trace context stands: a row of places, a row of lengths."""
    table = np.full((2, len(index)), -1, np.int64)
    if index.headers:
        index.run(kernels.find_header, index.fields, TRACE.encode(), table[0], table[1])
    return table


def nodes_among(
    index: RecordIndex, reserved_headers: ReservedHeaders, nodes: Sequence[bytes]
) -> npt.NDArray[np.bool_]:
    """Which records are of one of these nodes."""
    among = np.zeros(len(index), np.bool_)
    for node in nodes:
        index.run(kernels.mark_equal, reserved_headers.node_at, reserved_headers.node_length, node, among)
    return among
