"""WriteTxnMarkers: in Kafka, the coordinator tells other brokers that a transaction ended.

Here one ledger command ends a transaction in all partitions, so no marker is ever pending, and a client may not write
one: every partition is refused.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.write_txn_markers.v2.request import WriteTxnMarkersRequest
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

from mainstem.doors.kafka.transport.api import Api, Call


async def handle(call: Call, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    markers = tuple(
        WritableTxnMarkerResult(
            producer_id=marker.producer_id,
            topics=tuple(
                WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=tuple(
                        WritableTxnMarkerPartitionResult(
                            partition_index=partition, error_code=ErrorCode.cluster_authorization_failed
                        )
                        for partition in topic.partition_indexes
                    ),
                )
                for topic in marker.topics
            ),
        )
        for marker in request.markers
    )
    return WriteTxnMarkersResponse(markers=markers)


API = Api(27, 1, 2, handle)
