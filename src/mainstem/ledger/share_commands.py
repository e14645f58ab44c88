"""Commands about share groups: groups whose members read the same records, each record by one of them at a time.

And about the settings of groups, which say how."""

from __future__ import annotations

from enum import IntEnum

import msgspec


class Verdict(IntEnum):
    """What became of a record that a member had; the first five are Kafka's numbers."""

    GAP = 0  # there was no record
    ACCEPT = 1  # it is dealt with
    RELEASE = 2  # it is to be had again
    REJECT = 3  # nobody shall have it again
    RENEW = 4  # the member keeps it for longer
    UNREAD = 5  # it is to be had again, and does not count as handed out


class AlterGroupSettings(msgspec.Struct, frozen=True, array_like=True, tag=135):
    """Some of a group's settings are given a value, and some none any more; the others stay."""

    group: str
    put: tuple[tuple[str, str], ...]  # (name, value)
    removed: tuple[str, ...] = ()


class OpenShare(msgspec.Struct, frozen=True, array_like=True, tag=136):
    """A share group begins to read streams at these offsets: (stream, offset).

    `reset`: also those that it reads already, of which everything it knew is forgotten."""

    group: str
    starts: tuple[tuple[int, int], ...]
    reset: bool = False


class AcquireShare(msgspec.Struct, frozen=True, array_like=True, tag=137):
    """A member gets the next records of a stream that lie in [first, end), for `lock_ms`.

    They were read before: others, which may be had since then, it could not be told of."""

    group: str
    stream: int
    member: str
    broker: int  # that hands them out: its restart ends the lock
    limit: int
    first: int
    end: int
    lock_ms: int
    deliveries_max: int  # a record that was handed out as often is archived
    in_flight_max: int  # nothing new is handed out while as many records are not dealt with


class SettleShare(msgspec.Struct, frozen=True, array_like=True, tag=138):
    """What became of records that a member has: (first, end, verdict). All of it holds, or nothing.

    Without any: locks that are over by now are noted."""

    group: str
    stream: int
    member: str
    ranges: tuple[tuple[int, int, int], ...]
    lock_ms: int = 0  # of those that are renewed
    deliveries_max: int = 0  # 0 = any number


class DeleteShare(msgspec.Struct, frozen=True, array_like=True, tag=139):
    """Forget what a share group knows of these streams; of all of them if none is named."""

    group: str
    streams: tuple[int, ...] = ()
