"""ApiVersions: which APIs the door speaks, and in which versions. Clients ask it first.

Its answer's header never has tagged fields, so that a client can read it before it knows any version; and a
client that asks in a version unknown here gets version 0 of the answer, with an error and the ranges.

It also lists features, as tagged fields of the response:

| tag | field                    | type                               | versions             |
|-----|--------------------------|------------------------------------|----------------------|
| 0   | supported_features       | name, first level i2, last i2      | 4+, for the 0 in them |
| 1   | finalized_features_epoch | i8                                 | 3+                   |
| 2   | finalized_features       | name, highest level i2, lowest i2  | 3+                   |

`transaction.version` 2 lets clients write to partitions that they did not add to a transaction before, and gives them
a new epoch after each transaction. The others tell that the broker assigns the partitions of groups, and has share
groups and streams groups.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache

from mainstem.doors.kafka.transport.api import Call, FastApi, Reply
from mainstem.doors.kafka.transport.wire import (
    INT64,
    NO_TAGS,
    write_count,
    write_string,
    write_uvarint,
)

_KEY = 18
_FLEXIBLE_FROM = 3
_UNSUPPORTED_VERSION = 35
_RANGE = struct.Struct(">hhh")
_ERROR = struct.Struct(">h")
_THROTTLE = struct.Struct(">i")
_LEVELS = struct.Struct(">hh")

_FEATURE_LEVELS = {"group.version": 1, "share.version": 1, "streams.version": 1, "transaction.version": 2}
_FEATURES_EPOCH = 0  # they do not change while the broker runs
_FIRST_LEVEL_ZERO_FROM = 4  # clients of version 3 fail on a feature whose lowest level is 0


def handle(call: Call, body: memoryview, reply: Reply) -> None:
    reply.send([_answer(call.version, 0)])


def unknown_version_answer() -> bytes:
    return _answer(0, _UNSUPPORTED_VERSION)


@cache
def _answer(version: int, error: int) -> bytes:
    from mainstem.doors.kafka.transport.registry import apis

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
        out.append(_features(version))
    return b"".join(out)


def _features(version: int) -> bytes:
    """The tagged fields at the end of a response."""
    fields = {
        1: INT64.pack(_FEATURES_EPOCH),
        2: _feature_list({name: (level, level) for name, level in _FEATURE_LEVELS.items()}),
    }
    if version >= _FIRST_LEVEL_ZERO_FROM:
        fields = {0: _feature_list({name: (0, level) for name, level in _FEATURE_LEVELS.items()}), **fields}
    out = [write_uvarint(len(fields))]
    for tag, field in fields.items():
        out += (write_uvarint(tag), write_uvarint(len(field)), field)
    return b"".join(out)


def _feature_list(features: Mapping[str, tuple[int, int]]) -> bytes:
    """An array of features, each with two levels."""
    out = [write_count(len(features), True)]
    for name, levels in features.items():
        out += (write_string(name, True), _LEVELS.pack(*levels), NO_TAGS)
    return b"".join(out)


API = FastApi(_KEY, 0, 4, _FLEXIBLE_FROM, handle, plain_answer_header=True, metered=False)
