"""AlterClientQuotas: set and remove the quotas of users and client ids. The changes to one entity apply together."""

from __future__ import annotations

from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
from kio.schema.alter_client_quotas.v1.request import EntryData as Alteration
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse, EntityData, EntryData

from mainstem.broker.rates import AlterRate
from mainstem.doors.kafka.apis.bulk import DONE, ItemRefused, ItemResult, outcome_of, side_by_side
from mainstem.doors.kafka.apis.quota_entities import read_entity
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError


async def handle(call: Call, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    async def alter(alteration: Alteration) -> EntryData:
        outcome = await _outcome(call, alteration, dry_run=request.validate_only)
        entity = tuple(
            EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in alteration.entity
        )
        return EntryData(error_code=outcome.code, error_message=outcome.message, entity=entity)

    entries = await side_by_side(alter, request.entries)
    return AlterClientQuotasResponse(throttle_time=NO_THROTTLE, entries=tuple(entries))


async def _outcome(call: Call, alteration: Alteration, *, dry_run: bool) -> ItemResult:
    try:
        command = AlterRate(
            read_entity(alteration.entity),
            tuple((op.key, float(op.value)) for op in alteration.ops if not op.remove),
            tuple(op.key for op in alteration.ops if op.remove),
        )
        await call.context.broker.rates.alter(command, dry_run=dry_run)
    except (ItemRefused, MainstemError) as error:
        return outcome_of(error)
    return DONE


API = Api(49, 0, 1, handle)
