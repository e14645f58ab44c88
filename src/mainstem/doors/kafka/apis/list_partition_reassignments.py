"""ListPartitionReassignments: always empty. Tools ask for it when they describe topics."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import ListPartitionReassignmentsResponse

from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE


async def handle(
    call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None, topics=()
    )


API = Api(46, 0, 0, handle)
