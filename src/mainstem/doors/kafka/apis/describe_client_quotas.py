"""DescribeClientQuotas: the quotas of entities that match a filter."""

from __future__ import annotations

from kio.schema.describe_client_quotas.v1.request import ComponentData, DescribeClientQuotasRequest
from kio.schema.describe_client_quotas.v1.response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import f64

from mainstem.broker.rates import RateEntity, RateLimits
from mainstem.doors.kafka.apis.bulk import ItemRefused, repeated
from mainstem.doors.kafka.apis.quota_entities import CLIENT, check_type, parts_of
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE

_EXACT, _DEFAULT, _ANY = 0, 1, 2


async def handle(call: Call, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    try:
        _check(request.components)
    except ItemRefused as refused:
        return DescribeClientQuotasResponse(
            throttle_time=NO_THROTTLE, error_code=refused.code, error_message=str(refused), entries=None
        )
    found = [
        _entry(quota)
        for quota in call.context.broker.rates.all()
        if parts_of(quota.entity) and _picks(request, quota.entity)
    ]
    return DescribeClientQuotasResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None, entries=tuple(found)
    )


def _check(components: tuple[ComponentData, ...]) -> None:
    for component in components:
        check_type(component.entity_type, ErrorCode.unsupported_version)
        if component.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise ItemRefused(ErrorCode.invalid_request, f"unknown match type {component.match_type}")
        if (component.match is None) != (component.match_type != _EXACT):
            raise ItemRefused(ErrorCode.invalid_request, "only an exact match has a name, and it needs one")
    if repeated(component.entity_type for component in components):
        raise ItemRefused(ErrorCode.invalid_request, "a filter names a type of entity twice")


def _picks(request: DescribeClientQuotasRequest, entity: RateEntity) -> bool:
    asked = {component.entity_type for component in request.components}
    if request.strict and asked != {kind for kind, _ in parts_of(entity)}:
        return False
    return all(_matches(component, entity) for component in request.components)


def _matches(component: ComponentData, entity: RateEntity) -> bool:
    name = entity.client if component.entity_type == CLIENT else entity.user
    if component.match_type == _EXACT:
        return bool(name) and name == component.match
    return name == "" if component.match_type == _DEFAULT else name is not None


def _entry(quota: RateLimits) -> EntryData:
    return EntryData(
        entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in parts_of(quota.entity)),
        values=tuple(ValueData(key=key, value=f64(value)) for key, value in quota.limits),
    )


API = Api(48, 0, 1, handle)
