"""Share sessions on the wire: shared by ShareFetch and ShareAcknowledge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from kio.schema.errors import ErrorCode

from mainstem import limits
from mainstem.broker.access.rules import Operation, ResourceType
from mainstem.broker.namespaces import split_id
from mainstem.broker.share.sessions import CLOSES, ShareSession
from mainstem.broker.share.shares import Settlement, Verdict
from mainstem.broker.streams import find_stream
from mainstem.doors.kafka.apis.bulk import DONE, ItemRefused, ItemResult, outcome_of
from mainstem.doors.kafka.security.refusals import FORBIDDEN
from mainstem.doors.kafka.transport.api import Call
from mainstem.doors.kafka.transport.context import KafkaContext
from mainstem.errors import MainstemError

_KINDS = (Verdict.GAP, Verdict.ACCEPT, Verdict.RELEASE, Verdict.REJECT, Verdict.RENEW)


class AcknowledgementBatch(Protocol):
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def acknowledge_types(self) -> Sequence[int]: ...


class Acknowledgement(NamedTuple):
    """The acknowledgements of one partition of a request."""

    topic_id: bytes
    partition: int
    batches: Sequence[AcknowledgementBatch]


def topic_bytes(topic_id: UUID | None) -> bytes:
    return b"" if topic_id is None else topic_id.bytes


async def catch_up(call: Call, topic_ids: Iterable[bytes]) -> None:
    """Catch up if a topic is unknown: another broker may have just created it."""
    streams = call.context.broker.streams
    if any(streams.get_by_id(topic_id) is None for topic_id in topic_ids):
        await call.context.broker.barrier()


def check_readable(call: Call, topic_id: bytes) -> None:
    """Raises Refused. An unknown id has its own error code."""
    topic = call.context.broker.streams.get_by_id(topic_id)
    if topic is not None and not call.may_or_audit(Operation.READ, ResourceType.TOPIC, topic.name):
        raise ItemRefused(ErrorCode.topic_authorization_failed, FORBIDDEN)


def check_group(call: Call, group: str) -> None:
    """Raises Refused."""
    if not 1 <= len(split_id(group)[1]) <= limits.NAME_CHARS_MAX:
        raise ItemRefused(
            ErrorCode.invalid_group_id, f"a group name has 1 to {limits.NAME_CHARS_MAX} characters"
        )
    if not call.may_or_audit(Operation.READ, ResourceType.GROUP, group):
        raise ItemRefused(ErrorCode.group_authorization_failed, FORBIDDEN)


def stream_of(call: Call, topic_id: bytes, partition: int) -> int:
    """Raises Refused."""
    topic = call.context.broker.streams.get_by_id(topic_id)
    if topic is None:
        raise ItemRefused(ErrorCode.unknown_topic_id, f"no topic has the id {topic_id.hex()}")
    stream = find_stream(topic, partition)
    if stream < 0:
        raise ItemRefused(
            ErrorCode.unknown_topic_or_partition, f"topic {topic.name!r} has no partition {partition}"
        )
    return stream


async def acknowledge(
    call: Call, session: ShareSession, acknowledgements: Iterable[Acknowledgement], *, renews: bool
) -> dict[tuple[bytes, int], ItemResult]:
    """Apply the member's acknowledgements; durable when it returns."""
    outcomes: dict[tuple[bytes, int], ItemResult] = {}
    for topic_id, partition, batches in acknowledgements:
        try:
            check_readable(call, topic_id)
            stream = stream_of(call, topic_id, partition)
            ranges = _settlements(batches, renews=renews)
            await call.context.broker.shares.settle(session.group, session.member, stream, ranges)
            outcomes[topic_id, partition] = DONE
        except (ItemRefused, MainstemError) as error:
            outcomes[topic_id, partition] = outcome_of(error)
    return outcomes


def _settlements(batches: Sequence[AcknowledgementBatch], *, renews: bool) -> list[Settlement]:
    """A batch has one acknowledgement type for all its records, or one per record. Raises Refused."""
    found: list[Settlement] = []
    reached = -1
    for batch in batches:
        first, end, kinds = batch.first_offset, batch.last_offset + 1, batch.acknowledge_types
        if not reached < first < end or len(kinds) not in (1, end - first):
            raise ItemRefused(
                ErrorCode.invalid_request, f"no acknowledgement is for offsets {first} to {end - 1}"
            )
        if not all(kind in _KINDS and (renews or kind != Verdict.RENEW) for kind in kinds):
            raise ItemRefused(ErrorCode.invalid_request, "an acknowledgement has an unknown type")
        reached = end - 1
        if len(kinds) == 1:
            found.append((first, end, kinds[0]))
        else:
            found += ((first + at, first + at + 1, kind) for at, kind in enumerate(kinds))
    return found


async def close(call: Call, session: ShareSession) -> None:
    """The member leaves: release the records it did not acknowledge. That counts as a delivery, as in Kafka."""
    context = call.context
    if context.share_sessions.close(session):
        await context.broker.shares.release(session.group, session.member)


def closes(epoch: int) -> bool:
    return epoch == CLOSES


def attend(call: Call, session: ShareSession) -> None:
    """A member lasts as long as its connection: when that closes, its records are released."""
    if not isinstance(call.memory, _ConnectionSessions):
        call.memory = _ConnectionSessions(call.context)
    call.memory.sessions[session.group, session.member] = session


class _ConnectionSessions:
    """The sessions that were opened through one connection."""

    def __init__(self, context: KafkaContext) -> None:
        self._context = context
        self.sessions: dict[tuple[str, str], ShareSession] = {}

    def forget(self) -> None:
        for session in self.sessions.values():
            if self._context.share_sessions.close(session):
                self._context.broker.shares.abandon(session.group, session.member)
