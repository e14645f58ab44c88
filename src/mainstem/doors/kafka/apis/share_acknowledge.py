"""ShareAcknowledge: a share consumer accepts, releases or rejects records; durable before the response (KIP-932)."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.share_acknowledge.v2.request import ShareAcknowledgeRequest
from kio.schema.share_acknowledge.v2.response import (
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kio.static.primitive import i32, i32Timedelta

from mainstem.broker.share.sessions import OPENS, TopicPartition
from mainstem.doors.kafka.apis.bulk import ItemRefused, ItemResult, outcome_of
from mainstem.doors.kafka.apis.leader_epochs import LEADER_EPOCH
from mainstem.doors.kafka.apis.share_sessions import (
    Acknowledgement,
    acknowledge,
    catch_up,
    check_group,
    close,
    closes,
    topic_bytes,
)
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import InvalidShareSession, MainstemError

_FIRST_WITH_RENEWAL = 2


async def handle(call: Call, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    group, member, epoch = request.group_id or "", request.member_id or "", request.share_session_epoch
    try:
        check_group(call, group)
        if epoch == OPENS:
            raise InvalidShareSession("a share session is opened by a fetch")
        session = call.context.share_sessions.find(group, member, epoch)
        told = [
            Acknowledgement(topic_bytes(topic.topic_id), part.partition_index, part.acknowledgement_batches)
            for topic in request.topics
            for part in topic.partitions
        ]
        await catch_up(call, {row.topic_id for row in told})
        outcomes = await acknowledge(call, session, told, renews=call.version >= _FIRST_WITH_RENEWAL)
        if closes(epoch):
            await close(call, session)
    except (ItemRefused, MainstemError) as error:
        code, message = outcome_of(error)
        return ShareAcknowledgeResponse(
            throttle_time=NO_THROTTLE,
            error_code=code,
            error_message=message,
            acquisition_lock_timeout=NO_THROTTLE,
            responses=(),
            node_endpoints=(),
        )
    lock = timedelta(milliseconds=call.context.broker.shares.settings(group).lock_ms)
    return ShareAcknowledgeResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        acquisition_lock_timeout=i32Timedelta.parse(lock),
        responses=_responses(call, outcomes),
        node_endpoints=(),
    )


def _responses(
    call: Call, outcomes: dict[TopicPartition, ItemResult]
) -> tuple[ShareAcknowledgeTopicResponse, ...]:
    leader = LeaderIdAndEpoch(leader_id=i32(call.context.node_id), leader_epoch=i32(LEADER_EPOCH))
    topics: dict[bytes, list[PartitionData]] = {}
    for (topic_id, index), outcome in outcomes.items():
        topics.setdefault(topic_id, []).append(
            PartitionData(
                partition_index=i32(index),
                error_code=outcome.code,
                error_message=outcome.message,
                current_leader=leader,
            )
        )
    return tuple(
        ShareAcknowledgeTopicResponse(
            topic_id=UUID(bytes=topic_id) if topic_id else None, partitions=tuple(partitions)
        )
        for topic_id, partitions in topics.items()
    )


API = Api(79, 1, 2, handle)
