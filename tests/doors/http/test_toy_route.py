"""A new route takes what docs/contributing.md says: structs, a route, a handler, and a line in the table."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainstem.api.base import Performance
from mainstem.api.route import Body, Query, Route, Scope
from mainstem.doors.http.routes import openapi, table
from mainstem.doors.http.transport import app
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply
from mainstem.doors.http.transport.routing import Endpoint, Routes
from tests.support import contract

from .conftest import code


class ToyBody(msgspec.Struct, forbid_unknown_fields=True):
    toy: str


class ToyShout(msgspec.Struct):
    toy: str
    topic: str
    performance: Performance


TOY = Route(
    "POST",
    "/v0/topics/{topic}/toy",
    ToyShout,
    Scope.WRITE,
    Body.JSON,
    ToyBody,
    query=(Query("loud", "boolean", "In capitals."),),
)

_toy_body = msgspec.json.Decoder(ToyBody)


async def post_toy(request: HttpRequest) -> Response:
    """Say a toy of a topic."""
    toy = request.json(_toy_body).toy
    loud = request.text("loud") == "true"
    return reply(ToyShout(toy.upper() if loud else toy, request.topic, request.performance()))


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> tuple[Endpoint, ...]:
    """The table with one more line."""
    endpoints = (*table.TABLE, Endpoint(TOY, post_toy, f"{TOY.method} {TOY.path}"))
    for user in (app, contract):
        monkeypatch.setattr(user, "ROUTES", Routes(endpoints))
    return endpoints


async def test_a_new_route_is_served_checked_and_described(toy: tuple[Endpoint, ...], open_api: Any) -> None:
    async with open_api(api_keys="boss,reader:read") as api:
        status, body = await api.ask("PUT", "/v0/topics/t", {}, key="boss")
        assert status == 201, body
        status, body = await api.ask("POST", TOY.url("t") + "?loud=true", {"toy": "bear"}, key="boss")
        assert status == 200, body
        assert (body["toy"], body["topic"]) == ("BEAR", "t")
        refused = await api.ask("POST", TOY.url("t"), {"toy": "bear"}, key="reader")
        assert code(refused) == (403, "forbidden")
        invalid = await api.ask("POST", TOY.url("t"), {"game": 1}, key="boss")
        assert code(invalid) == (400, "invalid_request")
        assert code(await api.ask("GET", TOY.url("t"), key="boss")) == (405, "method_not_allowed")
    described = openapi.document(toy)["paths"][TOY.path]["post"]
    assert described["summary"] == "Say a toy of a topic."
    assert {"topic", "loud"} == {each["name"] for each in described["parameters"]}
