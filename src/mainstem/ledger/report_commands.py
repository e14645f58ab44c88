"""Commands of those who work beside the brokers and say how they are doing."""

from __future__ import annotations

import msgspec


class KeepReport(msgspec.Struct, frozen=True, array_like=True, tag=150):
    """The last that somebody said of himself. What the body means is for those who show it."""

    kind: str  # what he is, as "pipeline"
    name: str
    body: bytes
