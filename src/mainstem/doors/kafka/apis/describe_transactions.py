"""DescribeTransactions: the state of transactional ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import TZAware, i16, i32, i32Timedelta

from mainstem.doors.kafka.apis.transaction_states import STATES
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import TransactionNotFound

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def handle(call: Call, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    states = tuple(_state(call, id) for id in request.transactional_ids)
    return DescribeTransactionsResponse(throttle_time=NO_THROTTLE, transaction_states=states)


def _state(call: Call, id: TransactionalId) -> TransactionState:
    try:
        info = call.context.transactions.describe(id)
    except TransactionNotFound as error:
        return TransactionState(
            error_code=code_of(error),
            transactional_id=id,
            transaction_state="",
            transaction_timeout=NO_THROTTLE,
            transaction_start_time=_time(-1),
            producer_id=ProducerId(-1),
            producer_epoch=i16(-1),
            topics=(),
        )
    return TransactionState(
        error_code=ErrorCode.none,
        transactional_id=id,
        transaction_state=STATES[info.phase],
        transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=info.timeout_ms)),
        transaction_start_time=_time(info.started_ms),
        producer_id=ProducerId(info.producer),
        producer_epoch=i16(info.epoch),
        topics=tuple(
            TopicData(topic=TopicName(name), partitions=tuple(map(i32, partitions)))
            for name, partitions in info.partitions.items()
        ),
    )


def _time(ms: int) -> TZAware:
    """Kafka writes -1 for "no time", which the library reads as one millisecond before the epoch."""
    return _EPOCH + timedelta(milliseconds=ms)  # type: ignore[return-value]


API = Api(65, 0, 0, handle)
