"""InitProducerId: the id and epoch a producer writes with."""

from __future__ import annotations

from datetime import timedelta

from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16

from mainstem.broker.access.principal import ANONYMOUS
from mainstem.broker.access.rules import Operation, ResourceType
from mainstem.broker.transactions.service import StartedProducer
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import producer_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import InvalidInput, MainstemError

_MS = timedelta(milliseconds=1)
_FENCED_FROM = 4  # first version that knows PRODUCER_FENCED
_NOBODY = StartedProducer(-1, -1)


async def handle(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    code, started = ErrorCode.none, _NOBODY
    if _two_phase(request) and not _may_use_two_phase(call, request):
        code = ErrorCode.transactional_id_authorization_failed
    else:
        try:
            started = await _initialise(call, request)
        except MainstemError as error:
            code = producer_code_of(error, fenced=call.version >= _FENCED_FROM)
    producer, epoch = started.kept or (-1, -1)
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        producer_id=ProducerId(started.producer),
        producer_epoch=i16(started.epoch),
        ongoing_txn_producer_id=ProducerId(producer),
        ongoing_txn_producer_epoch=i16(epoch),
    )


def _two_phase(request: InitProducerIdRequest) -> bool:
    return request.enable2_pc or request.keep_prepared_txn


def _may_use_two_phase(call: Call, request: InitProducerIdRequest) -> bool:
    """A producer whose transactions never time out can hold up readers, so it needs a permission of its own."""
    id = request.transactional_id or ""
    return call.context.two_phase_commit and call.may_or_audit(
        Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, id
    )


async def _initialise(call: Call, request: InitProducerIdRequest) -> StartedProducer:
    await call.context.broker.barrier()
    transactions, id = call.context.transactions, request.transactional_id
    if id is None:
        if _two_phase(request):
            raise InvalidInput("two-phase commit needs a transactional id")
        # An idempotent producer that lost its state gets a new id, which has no sequences.
        return StartedProducer(*await transactions.new_producer(_owner(call)))
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        raise InvalidInput("a producer states its id and its epoch, or neither")
    if not _two_phase(request):
        timeout_ms = request.transaction_timeout // _MS
        return StartedProducer(
            *await transactions.initialise(id, timeout_ms, request.producer_id, request.producer_epoch)
        )
    if not request.enable2_pc:
        raise InvalidInput("only a producer with two-phase commit keeps a transaction")
    return await transactions.initialise_two_phase(
        id, request.producer_id, request.producer_epoch, keep=request.keep_prepared_txn
    )


def _owner(call: Call) -> str:
    """The principal that owns the id; empty if the client did not authenticate."""
    return "" if call.principal.name == ANONYMOUS.name else call.principal.name


API = Api(22, 0, 6, handle)
