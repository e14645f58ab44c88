"""Which records an erasure removes: by key, or by one field of their JSON value."""

from __future__ import annotations

import base64
from typing import Any, Literal

import msgspec
import numpy as np

from mainstem import limits
from mainstem.broker.routers.tag_matching import Match
from mainstem.errors import InvalidInput
from mainstem.records.decoding import decode_records
from mainstem.records.index import Integers

WHERE_DEPTH_MAX = limits.TABLE_COLUMN_DEPTH_MAX

Scalar = str | int | float | bool | None
_decode_json = msgspec.json.Decoder().decode


class JsonMatch(msgspec.Struct, frozen=True):
    """Values that are JSON objects with this scalar at the end of a path of keys. Other values never match."""

    path: tuple[str, ...]
    equals: Scalar

    def offsets(self, batches: memoryview) -> Integers:
        """The offsets of matching records in some stamped batches."""
        found = [record.offset for record in decode_records(batches) if self.covers(record.value)]
        return np.array(found, np.int64)

    def covers(self, value: bytes | None) -> bool:
        if value is None:
            return False
        try:
            at: Any = _decode_json(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        for key in self.path:
            if not isinstance(at, dict) or key not in at:
                return False
            at = at[key]
        # In Python, True equals 1; in JSON it does not.
        return bool(at == self.equals) and isinstance(at, bool) == isinstance(self.equals, bool)


def parse_where(given: object) -> JsonMatch:
    """`["user.email", "Eq", "ann@example.com"]`: a path of keys, joined by dots, and the value there.

    Raises InvalidInput."""
    if (
        not isinstance(given, list | tuple)
        or len(given) != 3
        or not isinstance(given[0], str)
        or given[1] != "Eq"
        or not (given[2] is None or isinstance(given[2], str | int | float | bool))
    ):
        raise InvalidInput(
            'where is ["path.to.field", "Eq", value], with a text, a number, true, false or null'
        )
    path = tuple(given[0].split("."))
    if not all(path) or len(path) > WHERE_DEPTH_MAX:
        raise InvalidInput(f"a path has 1 to {WHERE_DEPTH_MAX} keys, joined by dots")
    return JsonMatch(path, given[2])


class ErasureRequest(msgspec.Struct, frozen=True):
    """What to erase. It is stored only until the records are deleted, and never in the log."""

    by: Literal["key", "tag", "where"]
    text: str = ""  # base64 of a key, a tag, or its prefix
    prefix: bool = False
    path: tuple[str, ...] = ()
    equals: Scalar = None

    @classmethod
    def of_key(cls, key: bytes) -> ErasureRequest:
        return cls("key", base64.b64encode(key).decode())

    @classmethod
    def of_tag(cls, match: Match) -> ErasureRequest:
        return cls("tag", base64.b64encode(match.text).decode(), match.prefix)

    @classmethod
    def of_where(cls, match: JsonMatch) -> ErasureRequest:
        return cls("where", path=match.path, equals=match.equals)

    @property
    def match(self) -> Match | JsonMatch:
        if self.by == "where":
            return JsonMatch(self.path, self.equals)
        return Match(base64.b64decode(self.text), self.prefix)
