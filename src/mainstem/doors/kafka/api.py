"""What one Kafka API is to the door.

Each API has a file of its own that exports `API`. Its handler is written once, against the message classes of the
newest version it speaks; requests of older versions are brought up to it and answers down from it (versions.py).
The hot ones (Produce, Fetch, ListOffsets) parse and write their bytes by hand instead and export `FastApi`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainstem.doors.kafka.context import KafkaContext


@dataclass(slots=True)
class Call:
    """One request: who asks, in which version, and what the door can use to answer."""

    context: KafkaContext
    version: int  # that the client speaks; the request is already of the newest version
    client_id: str | None
    host: str  # where the client connects from
    principal: str  # "User:ANONYMOUS" without authentication


Handler = Callable[[Call, Any], Awaitable[Any]]
FastHandler = Callable[[Call, memoryview], Awaitable[bytes | list[bytes | memoryview] | None]]


@dataclass(frozen=True, slots=True)
class Api:
    """An API whose messages a library reads and writes."""

    key: int
    first: int  # oldest version spoken
    last: int  # newest version spoken: what the handler takes and answers
    handle: Handler


@dataclass(frozen=True, slots=True)
class FastApi:
    """An API read and written by hand. Its handler gets the body after the request header, and answers the body after
    the response header; None means that nothing is answered (acks=0)."""

    key: int
    first: int
    last: int
    flexible_from: int  # first version with tagged fields in its headers
    handle: FastHandler
