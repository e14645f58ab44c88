"""Every supported API in every version: an empty request is answered, and the response can be read.

The APIs' own tests check the content of responses; this one finds a version that is in the table but not
implemented."""

from __future__ import annotations

import struct
import typing
from dataclasses import MISSING, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema

from mainstem.doors.kafka.transport.registry import apis
from tests.support.batches import batch

from .conftest import KafkaStage
from .wire import Wire

_PRODUCE = 0
_UNKNOWN_TO_THE_LIBRARY = {(_PRODUCE, version) for version in (0, 1, 2)}  # those are below

_EMPTY: tuple[tuple[type[Any], Any], ...] = (
    (bool, False),
    (int, 0),
    (float, 0.0),
    (str, ""),
    (bytes, b""),
    (UUID, None),
    (timedelta, timedelta(0)),
    (datetime, datetime.fromtimestamp(0, UTC)),
)


def _empty(schema: type[Any]) -> Any:
    """A message with only its required fields."""
    hints = typing.get_type_hints(schema)
    values = {
        field.name: _nothing(hints[field.name])
        for field in fields(schema)
        if field.default is MISSING and field.default_factory is MISSING
    }
    return schema(**values)


def _nothing(hint: Any) -> Any:
    parts = (hint, *typing.get_args(hint))
    if typing.get_origin(hint) is tuple or any(typing.get_origin(part) is tuple for part in parts):
        return ()
    for part in parts:
        # The library's own numbers and names are new types of the plain ones.
        plain = getattr(part, "__supertype__", part)
        plain = getattr(plain, "__supertype__", plain)
        for kind, value in _EMPTY:
            if isinstance(plain, type) and issubclass(plain, kind):
                return value
    raise AssertionError(f"nothing is known for {hint}")


async def test_an_empty_request_of_every_version_gets_a_readable_response(kafka: KafkaStage) -> None:
    unread: dict[tuple[int, int], Exception] = {}
    for key, api in sorted(apis().items()):
        for version in range(api.first, api.last + 1):
            if (key, version) in _UNKNOWN_TO_THE_LIBRARY:
                continue
            wire = await kafka.connect()
            request = _empty(load_request_schema(key, version))
            if key == _PRODUCE:
                request = replace(request, acks=-1)  # 0 gets no response
            try:
                await wire.ask(request)
            except Exception as error:  # noqa: BLE001  # whatever it is: the others are of interest too
                unread[key, version] = error
            await wire.close()
    assert unread == {}


@pytest.mark.parametrize(("version", "rest"), [(0, ()), (1, (0,)), (2, (-1, 0))])
async def test_the_oldest_versions_of_produce(wire: Wire, version: int, rest: tuple[int, ...]) -> None:
    """`rest`: the time of the append, if there is one, and the throttle time."""
    slice, _ = batch(b"x")
    topic = struct.pack(">h1si", 1, b"t", 1)
    frame = struct.pack(">hhih", _PRODUCE, version, 7, -1) + struct.pack(">hii", -1, 1000, 1) + topic
    frame += struct.pack(">ii", 0, len(slice)) + slice
    wire.send_raw(struct.pack(">i", len(frame)) + frame)
    answer = struct.pack(">ii", 7, 1) + topic + struct.pack(">ihq", 0, 0, 0)
    answer += struct.pack({0: ">", 1: ">i", 2: ">qi"}[len(rest)], *rest)
    assert await wire.receive_raw() == answer
