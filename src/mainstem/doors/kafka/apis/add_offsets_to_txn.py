"""AddOffsetsToTxn: a transaction is about to commit offsets of this group."""

from __future__ import annotations

from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
from kio.schema.add_offsets_to_txn.v4.response import AddOffsetsToTxnResponse
from kio.schema.errors import ErrorCode

from mainstem.broker.transactions.service import ProducerStamp
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import producer_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError

_FENCED_FROM = 2  # first version that knows PRODUCER_FENCED


async def handle(call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    stamp = ProducerStamp(request.transactional_id, request.producer_id, request.producer_epoch)
    code = ErrorCode.none
    try:
        await call.context.transactions.add_group(stamp, request.group_id)
    except MainstemError as error:
        code = producer_code_of(error, fenced=call.version >= _FENCED_FROM)
    return AddOffsetsToTxnResponse(throttle_time=NO_THROTTLE, error_code=code)


API = Api(25, 0, 4, handle)
