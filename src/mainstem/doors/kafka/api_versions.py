"""ApiVersions: which APIs the door speaks, and in which versions. Clients ask it first.

Its answer's header never has tagged fields, so that a client can read it before it knows any version; and a
client that asks in a version unknown here gets version 0 of the answer, with an error and the ranges.
"""

from __future__ import annotations

import struct
from functools import cache

from mainstem.doors.kafka.api import Call, FastApi, Reply
from mainstem.doors.kafka.wire import NO_TAGS, write_count

_KEY = 18
_FLEXIBLE_FROM = 3
_UNSUPPORTED_VERSION = 35
_RANGE = struct.Struct(">hhh")
_ERROR = struct.Struct(">h")
_THROTTLE = struct.Struct(">i")


def handle(call: Call, body: memoryview, reply: Reply) -> None:
    reply.send([_answer(call.version, 0)])


def unknown_version_answer() -> bytes:
    return _answer(0, _UNSUPPORTED_VERSION)


@cache
def _answer(version: int, error: int) -> bytes:
    from mainstem.doors.kafka.registry import apis

    flexible = version >= _FLEXIBLE_FROM
    spoken = sorted(apis().items())
    out = [_ERROR.pack(error), write_count(len(spoken), flexible)]
    for key, api in spoken:
        out.append(_RANGE.pack(key, api.first, api.last))
        if flexible:
            out.append(NO_TAGS)
    if version >= 1:
        out.append(_THROTTLE.pack(0))
    if flexible:
        out.append(NO_TAGS)
    return b"".join(out)


API = FastApi(_KEY, 0, 4, _FLEXIBLE_FROM, handle, plain_answer_header=True)
