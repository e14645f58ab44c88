"""Rates: list, set and remove them."""

from __future__ import annotations

from typing import Any

import msgspec

from mainstem.api.rates import RateBody, RateChanged, RateDescription, RateList
from mainstem.broker.rates import AlterRate, RateEntity
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply

_ENTITY = RateEntity.__struct_fields__
_rate_body = msgspec.json.Decoder(RateBody)


async def list_rates(request: HttpRequest) -> Response:
    """List the rates of users, client ids, groups, namespaces and topics."""
    rows = [_row(request, rate.entity) for rate in request.broker.rates.all()]
    return reply(RateList(rows, request.performance()))


async def put_rate(request: HttpRequest) -> Response:
    """Set limits of an entity, or remove some of them."""
    body = request.json(_rate_body)
    entity = RateEntity(body.user, body.client, body.group, body.namespace, body.topic)
    put = tuple((key, value) for key, value in body.limits.items() if value is not None)
    removed = tuple(key for key, value in body.limits.items() if value is None)
    await request.broker.rates.alter(AlterRate(entity, put, removed))
    return reply(RateChanged(_row(request, entity), request.performance()))


async def delete_rate(request: HttpRequest) -> Response:
    """Remove every limit of an entity."""
    entity = RateEntity(*(request.text(name) for name in _ENTITY))
    limits = tuple(request.broker.rates.stored.get(entity))
    await request.broker.rates.alter(AlterRate(entity, (), limits))
    return reply(RateChanged(_row(request, entity), request.performance()))


def _row(request: HttpRequest, entity: RateEntity) -> RateDescription:
    rates = request.broker.rates
    limits: dict[Any, float] = dict(rates.stored.get(entity))
    return RateDescription(limits, *rates.throttled(entity), *(getattr(entity, name) for name in _ENTITY))
