"""Encoded Metadata answers, kept as long as no topic changes."""

from __future__ import annotations

from collections import OrderedDict

from mainstem import limits


class MetadataCache:
    """Answers of one state of the topics by version and request body, bounded in bytes."""

    def __init__(self) -> None:
        self._state = 0
        self._held = 0
        self._answers: OrderedDict[tuple[int, bytes], bytes] = OrderedDict()

    def get(self, state: int, version: int, body: bytes) -> bytes | None:
        if state != self._state:
            self._answers.clear()
            self._held = 0
            self._state = state
        return self._answers.get((version, body))

    def put(self, version: int, body: bytes, answer: bytes) -> None:
        self._answers[version, body] = answer
        self._held += len(body) + len(answer)
        while self._held > limits.KAFKA_METADATA_BYTES_KEPT:
            (_, oldest), dropped = self._answers.popitem(last=False)
            self._held -= len(oldest) + len(dropped)
