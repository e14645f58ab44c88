"""The outcomes of appends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt


class AppendCode(IntEnum):
    """The outcome of one slice."""

    OK = 0
    DUPLICATE = 1  # an idempotent retry; the offset is the original one
    NO_STREAM = 2  # the stream does not exist (any more)
    FULL = 3  # cap reached, and the topic rejects
    OUT_OF_ORDER = 4  # a gap in the producer's sequence
    PRODUCER_FENCED = 5  # an older producer epoch
    BROKER_FENCED = 6  # the proposing broker's epoch is over
    PRODUCER_UNKNOWN = 7  # a sequence that continues something the ledger does not know
    INVALID_TRANSACTION = 8  # no open transaction of this producer covers the stream, or one forbids it
    OVERTAKEN = 9  # copies that another broker appended first


@dataclass(slots=True)
class AppendOutcome:
    """The offsets of a run, one row a slice. `base` is -1 where the slice was refused."""

    base: npt.NDArray[np.int64]
    code: npt.NDArray[np.uint8]
