"""Commands about groups whose partitions the broker assigns: what their coordinator decided."""

from __future__ import annotations

import msgspec

Assignment = tuple[tuple[bytes, tuple[int, ...]], ...]  # (topic id, its partitions)


class ConsumerMemberState(msgspec.Struct, frozen=True, array_like=True):
    """A member as its coordinator sees it; also as a checkpoint holds it."""

    member_id: str
    epoch: int  # -2 = a static member that left for now
    previous_epoch: int
    instance_id: str | None
    rack: str | None
    client_id: str
    client_host: str
    rebalance_ms: int
    topics: tuple[str, ...]
    pattern: str | None
    assignor: str | None
    assigned: Assignment  # what it may read
    revoking: Assignment  # what it has yet to give up
    target: Assignment  # what it shall read


class ChangeConsumerGroup(msgspec.Struct, frozen=True, array_like=True, tag=152):
    """A coordinator decided something. Refused unless nobody did since the revision it knows.

    With no members and none gone it only takes the group over: nobody who knows an older revision can decide then."""

    group: str
    after: int  # the revision it knows; 0 = the ledger holds nothing of the group
    epoch: int
    target_epoch: int
    members: tuple[ConsumerMemberState, ...]  # that are new, or others than they were
    gone: tuple[str, ...] = ()


class ForgetConsumerGroup(msgspec.Struct, frozen=True, array_like=True, tag=153):
    """The group lives on in its coordinator's memory alone. Refused as above."""

    group: str
    after: int
