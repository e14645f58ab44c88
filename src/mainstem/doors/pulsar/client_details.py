"""The client of a producer or a consumer, as statistics show it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from mainstem import limits

METADATA_BYTES_MAX = 4 * limits.KIB  # of the properties that a client names; what is beyond is left out
VERSION_CHARS_MAX = 128


class ClientDetails(NamedTuple):
    metadata: dict[str, str]
    version: str
    since_ms: int

    @classmethod
    def of(cls, rows: Iterable[Any], version: str, now_ms: int) -> ClientDetails:
        metadata: dict[str, str] = {}
        left = METADATA_BYTES_MAX
        for row in rows:
            left -= len(row.key) + len(row.value)
            if left < 0:
                break
            metadata[row.key.decode(errors="replace")] = row.value.decode(errors="replace")
        return cls(metadata, version[:VERSION_CHARS_MAX], now_ms)

    def shown(self) -> dict[str, Any]:
        """In Pulsar's fields."""
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(timespec="milliseconds")
        return {"metadata": self.metadata, "clientVersion": self.version, "connectedSince": since}
