"""Encoded Metadata answers, kept as long as no topic changes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from mainstem import limits


@dataclass(slots=True)
class MetadataAnswers:
    """Encoded answers of one state of the topics, by version and request body."""

    state: int = 0
    kept: OrderedDict[tuple[int, bytes], bytes] = field(default_factory=OrderedDict)

    def get(self, state: int, version: int, body: bytes) -> bytes | None:
        if state != self.state:
            self.kept.clear()
            self.state = state
        return self.kept.get((version, body))

    def put(self, version: int, body: bytes, answer: bytes) -> None:
        self.kept[version, body] = answer
        if len(self.kept) > limits.KAFKA_METADATA_ANSWERS_KEPT:
            self.kept.popitem(last=False)
