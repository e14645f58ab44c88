"""InitProducerId: the id and epoch a producer writes with."""

from __future__ import annotations

from datetime import timedelta

from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16

from mainstem.broker.access.principal import ANONYMOUS
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import producer_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import InvalidInput, MainstemError

_MS = timedelta(milliseconds=1)
_FENCED_FROM = 4  # first version that knows PRODUCER_FENCED


async def handle(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    code, producer, epoch = _unsupported_code(request), -1, -1
    if code is ErrorCode.none:
        try:
            producer, epoch = await _initialise(call, request)
        except MainstemError as error:
            code = producer_code_of(error, fenced=call.version >= _FENCED_FROM)
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        producer_id=ProducerId(producer),
        producer_epoch=i16(epoch),
    )


def _unsupported_code(request: InitProducerIdRequest) -> ErrorCode:
    """Refuse two-phase commit, with the code of a Kafka broker that has it disabled."""
    if request.enable2_pc:
        return ErrorCode.transactional_id_authorization_failed
    return ErrorCode.unsupported_version if request.keep_prepared_txn else ErrorCode.none


async def _initialise(call: Call, request: InitProducerIdRequest) -> tuple[int, int]:
    await call.context.broker.barrier()
    if request.transactional_id is None:
        # An idempotent producer that lost its state gets a new id, which has no sequences.
        return await call.context.transactions.new_producer(_owner(call))
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        raise InvalidInput("a producer states its id and its epoch, or neither")
    return await call.context.transactions.initialise(
        request.transactional_id,
        request.transaction_timeout // _MS,
        request.producer_id,
        request.producer_epoch,
    )


def _owner(call: Call) -> str:
    """The principal that owns the id; empty if the client did not authenticate."""
    return "" if call.principal.name == ANONYMOUS.name else call.principal.name


API = Api(22, 0, 6, handle)
