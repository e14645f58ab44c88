"""EndTxn: a transaction commits or aborts, in all its partitions and groups at once."""

from __future__ import annotations

from kio.schema.end_txn.v4.request import EndTxnRequest
from kio.schema.end_txn.v4.response import EndTxnResponse
from kio.schema.errors import ErrorCode

from mainstem.broker.transactions import ProducerStamp
from mainstem.doors.kafka.api import Api, Call
from mainstem.doors.kafka.errors import producer_code_of
from mainstem.doors.kafka.throttle import NO_THROTTLE
from mainstem.errors import MainstemError

_FENCED_FROM = 2  # first version that knows PRODUCER_FENCED


async def handle(call: Call, request: EndTxnRequest) -> EndTxnResponse:
    stamp = ProducerStamp(request.transactional_id, request.producer_id, request.producer_epoch)
    code = ErrorCode.none
    try:
        await call.context.transactions.end(stamp, commit=request.committed)
    except MainstemError as error:
        code = producer_code_of(error, fenced=call.version >= _FENCED_FROM)
    return EndTxnResponse(throttle_time=NO_THROTTLE, error_code=code)


API = Api(26, 0, 4, handle)
