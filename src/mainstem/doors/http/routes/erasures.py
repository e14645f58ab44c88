"""Erasures: remove records with every byte of them."""

from __future__ import annotations

import base64
import binascii

import msgspec

from mainstem.api.access import Operation
from mainstem.api.erasures import EraseBody, ErasedTopicView, ErasureList, ErasureView
from mainstem.broker.erasures.matching import ErasureRequest, parse_where
from mainstem.broker.erasures.service import Erasure
from mainstem.doors.http.routes.matching import parse_match
from mainstem.doors.http.transport.errors import invalid
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply

_erase_body = msgspec.json.Decoder(EraseBody)


async def post_erase(request: HttpRequest) -> Response:
    """Erase records by key, tag or a field of their JSON value: from readers, files, tables and copies."""
    body = _what(request.json(_erase_body))
    broker = request.broker
    topic = broker.streams.topic(request.topic)
    for covered in broker.erasures.covered(topic, body):
        request.require_topic(covered.name, Operation.DELETE)
    accepted = await broker.erasures.accept(topic, body)
    return reply(await _view(request, accepted), 202)


async def list_erasures(request: HttpRequest) -> Response:
    """List the erasures, and how far each one is."""
    found = [await _view(request, one, report=False) for one in request.broker.erasures.all()]
    return reply(ErasureList(found))


async def get_erasure(request: HttpRequest) -> Response:
    """Get one erasure: how far it is, and its signed report once it is done."""
    found = request.broker.erasures.get(request.parameters["id"])
    request.require_topic(found.topics[0].name, Operation.DELETE)
    return reply(await _view(request, found))


def _what(body: EraseBody) -> ErasureRequest:
    given = [one for one in (body.key, body.key_base64, body.match, body.where) if one is not None]
    if len(given) != 1:
        raise invalid("say what to erase: one of key, key_base64, match and where")
    if body.key is not None:
        return ErasureRequest.of_key(body.key.encode())
    if body.key_base64 is not None:
        try:
            return ErasureRequest.of_key(base64.b64decode(body.key_base64, validate=True))
        except (binascii.Error, ValueError):
            raise invalid("key_base64 is not base64") from None
    if body.match is not None:
        return ErasureRequest.of_tag(parse_match(body.match))
    return ErasureRequest.of_where(parse_where(body.where))


async def _view(request: HttpRequest, one: Erasure, *, report: bool = True) -> ErasureView:
    erasures = request.broker.erasures
    return ErasureView(
        one.id,
        one.topics[0].name,
        one.by,
        one.phase,
        erasures.waits_for(one),
        one.accepted_ms,
        one.changed_ms,
        [ErasedTopicView(topic.name, topic.role, topic.records) for topic in one.topics],
        one.problem,
        one.report.decode() if report else "",
        await erasures.public_key(),
    )
