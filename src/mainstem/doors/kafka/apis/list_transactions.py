"""ListTransactions: the transactional ids, filtered by state, producer, name and duration."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import ListTransactionsResponse, TransactionState
from kio.schema.types import ProducerId, TransactionalId

from mainstem.broker.groups.subscription import matching
from mainstem.broker.namespaces import split_id
from mainstem.broker.transactions.service import TransactionInfo, TransactionPhase
from mainstem.doors.kafka.apis.transaction_states import KNOWN_STATES, STATES
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import InvalidRegex


async def handle(call: Call, request: ListTransactionsRequest) -> ListTransactionsResponse:
    now = call.context.clock.now_ms()
    found = [info for info in call.context.transactions.all() if _wanted(request, info, now)]
    code = ErrorCode.none
    if request.transactional_id_pattern:
        try:
            named = matching(request.transactional_id_pattern, (split_id(info.id)[1] for info in found))
        except InvalidRegex as error:
            code, named = code_of(error), frozenset()
        found = [info for info in found if split_id(info.id)[1] in named]
    states = tuple(
        TransactionState(
            transactional_id=TransactionalId(info.id),
            producer_id=ProducerId(info.producer),
            transaction_state=STATES[info.phase],
        )
        for info in found
    )
    return ListTransactionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
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


API = Api(66, 0, 2, handle)
