"""Read and write messages with the library in the client's version; handlers get the newest version."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from mainstem.doors.kafka.transport.api import Api, FastApi
from mainstem.doors.kafka.transport.message_bounds import fitted
from mainstem.doors.kafka.transport.versions import convert
from mainstem.errors import MalformedRequest


def read(api: Api | FastApi, version: int, body: bytes) -> Any:
    """The request in the newest version. Raises MalformedRequest."""
    return convert(read_as_sent(api.key, version, body), load_request_schema(api.key, api.last))


def read_as_sent(key: int, version: int, body: bytes) -> Any:
    """The request in its own version. Raises MalformedRequest."""
    body = fitted(load_request_schema(key, version), body)
    try:
        return _reader(key, version)(body, 0)[0]
    except (SerialError, ValueError, OverflowError, KeyError) as error:  # the last is an unknown tagged field
        raise MalformedRequest(f"the body of API {key} version {version} is unreadable: {error}") from None


def write(api: Api | FastApi, version: int, answer: Any) -> bytes:
    out = io.BytesIO()
    schema = load_response_schema(api.key, version)
    _writer(api.key, version)(out, convert(answer, schema))
    return out.getvalue()


@cache
def flexible(key: int, version: int) -> bool:
    """Whether the headers of this version have tagged fields."""
    return bool(load_request_schema(key, version).__flexible__)


@cache
def _reader(key: int, version: int) -> Any:
    return entity_reader(load_request_schema(key, version))


@cache
def _writer(key: int, version: int) -> Any:
    return entity_writer(load_response_schema(key, version))
