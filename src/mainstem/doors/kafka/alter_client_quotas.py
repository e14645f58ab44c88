"""AlterClientQuotas: refused, for nothing would enforce a quota."""

from __future__ import annotations

from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
from kio.schema.alter_client_quotas.v1.request import EntryData as Alteration
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse, EntityData, EntryData
from kio.schema.errors import ErrorCode

from mainstem.doors.kafka.api import Api, Call
from mainstem.doors.kafka.throttle import NO_THROTTLE


async def handle(call: Call, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    entries = tuple(_refused(alteration) for alteration in request.entries)
    return AlterClientQuotasResponse(throttle_time=NO_THROTTLE, entries=entries)


def _refused(alteration: Alteration) -> EntryData:
    return EntryData(
        error_code=ErrorCode.invalid_request,
        error_message="there are no client quotas: nothing would enforce them",
        entity=tuple(
            EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in alteration.entity
        ),
    )


API = Api(49, 0, 1, handle)
