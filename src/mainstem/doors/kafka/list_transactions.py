"""ListTransactions: the transactional ids there are, by state, producer and how long they have been open."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.list_transactions.v1.request import ListTransactionsRequest
from kio.schema.list_transactions.v1.response import ListTransactionsResponse, TransactionState
from kio.schema.types import ProducerId, TransactionalId

from mainstem.broker.transactions import TransactionInfo
from mainstem.doors.kafka.api import Api, Call
from mainstem.doors.kafka.throttle import NO_THROTTLE
from mainstem.doors.kafka.transaction_states import KNOWN_STATES, STATES
from mainstem.ledger.transactions import TransactionPhase


async def handle(call: Call, request: ListTransactionsRequest) -> ListTransactionsResponse:
    now = call.context.clock.now_ms()
    states = tuple(
        TransactionState(
            transactional_id=TransactionalId(info.id),
            producer_id=ProducerId(info.producer),
            transaction_state=STATES[info.phase],
        )
        for info in call.context.transactions.all()
        if _wanted(request, info, now)
    )
    return ListTransactionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        unknown_state_filters=tuple(state for state in request.state_filters if state not in KNOWN_STATES),
        transaction_states=states,
    )


def _wanted(request: ListTransactionsRequest, info: TransactionInfo, now_ms: int) -> bool:
    if request.state_filters and STATES[info.phase] not in request.state_filters:
        return False
    if request.producer_id_filters and info.producer not in request.producer_id_filters:
        return False
    if request.duration_filter < 0:
        return True
    return info.phase is TransactionPhase.OPEN and now_ms - info.started_ms > request.duration_filter


API = Api(66, 0, 1, handle)
