"""Types that every part of the contract uses: numbers, timings and errors."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mainstem import limits

U64 = Annotated[int, Meta(ge=0)]  # the server clamps numbers over 64 bits, like every other bound
I32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Offset = Annotated[int, Meta(ge=0, le=limits.OFFSET_MAX)]
PartitionNumber = Annotated[int, Meta(ge=0, lt=limits.PARTITIONS_PER_TOPIC_MAX)]
Name = Annotated[str, Meta(min_length=1)]
Match = str | list[str] | None  # "prefix*", "tag", or ["tag", "Eq" or "Glob", text]


class Performance(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long the server took, in milliseconds."""

    server_total_ms: float
    wal_append_ms: float | None = None
    fsync_ms: float | None = None
    records_scanned: int | None = None
    throttle_wait_ms: float | None = None


UNTIMED = Performance(0.0)  # what the broker fills in; the HTTP door replaces it


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Why a request failed. `code` is for programs, `message` is for people."""

    code: Annotated[str, Meta(pattern="^[a-z_]+$")]
    message: Annotated[str, Meta(min_length=1)]
    detail: Any = None


class ErrorResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of every response outside 2xx."""

    error: ErrorBody


class ErrorEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last event of a stream that fails."""

    code: str
    message: str
    topic: str | None = None
    detail: Any = None
