"""Where records are stored: files of the log, repacked files, and the parts that replaced them."""

from __future__ import annotations

import msgspec

from mainstem.broker.storage_map import StorageMap, storage_map
from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import Response, reply


async def get_storage(request: HttpRequest) -> Response:
    """Files of the log and what is in each, repacked files and what is in each, and parts by generation."""
    return _answer(request, await storage_map(request.broker, request.key.allows))


async def get_topic_storage(request: HttpRequest) -> Response:
    """The same of one topic."""
    topic = request.broker.streams.topic(request.topic)
    return _answer(request, await storage_map(request.broker, request.key.allows, topic))


def _answer(request: HttpRequest, found: StorageMap) -> Response:
    content: dict[str, object] = msgspec.to_builtins(found)
    return reply({**content, "performance": request.performance()})
