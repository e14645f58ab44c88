"""EndTxn: commit or abort a transaction in all its partitions and groups, atomically."""

from __future__ import annotations

from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId
from kio.static.primitive import i16

from mainstem.broker.transactions.service import ProducerStamp
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import producer_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError

_FENCED_FROM = 2  # first version that knows PRODUCER_FENCED
_BUMP_FROM = 5  # first version that returns the next producer id and epoch (transaction.version 2)


async def handle(call: Call, request: EndTxnRequest) -> EndTxnResponse:
    stamp = ProducerStamp(request.transactional_id, request.producer_id, request.producer_epoch)
    try:
        following = await call.context.transactions.end(
            stamp, commit=request.committed, bump=call.version >= _BUMP_FROM
        )
    except MainstemError as error:
        code = producer_code_of(error, fenced=call.version >= _FENCED_FROM)
        return EndTxnResponse(throttle_time=NO_THROTTLE, error_code=code)
    return EndTxnResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=ProducerId(following.producer),
        producer_epoch=i16(following.epoch),
    )


API = Api(26, 0, 5, handle)
