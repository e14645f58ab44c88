"""Compacted views of streams: below its horizon, a view has only the last record of each key.

The records themselves stay: readers that ask for the view leave the others out. So a view is one offset.
"""

from __future__ import annotations

import msgspec

from mainstem.errors import InvalidInput, MainstemError, StreamNotFound
from mainstem.ledger.keyed import Keyed, fields_hash
from mainstem.ledger.section import Command, Moment, Section, applies, reacts
from mainstem.ledger.streams import Streams
from mainstem.ledger.topics import TopicDeletedEvent


class RaiseCompactionHorizon(Command, frozen=True, tag=310):
    """The compacted view of a stream covers the records below this offset. It never shrinks."""

    stream: int
    horizon: int


class CompactionHorizon(msgspec.Struct, frozen=True, array_like=True):
    """The horizon of a stream; also its form in a checkpoint."""

    stream: int
    horizon: int


class CompactionHorizons(Section[list[CompactionHorizon]]):
    """By stream, so there are at most as many as streams."""

    requires = (Streams,)

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._horizons: Keyed[int, CompactionHorizon] = Keyed(fields_hash("compaction horizon"))

    def of(self, stream: int) -> int:
        """0: the stream was never compacted."""
        found = self._horizons.get(stream)
        return 0 if found is None else found.horizon

    @applies(RaiseCompactionHorizon)
    def raise_horizon(self, command: RaiseCompactionHorizon, now: Moment) -> int | MainstemError:
        if not self._streams.exists(command.stream):
            return StreamNotFound(command.stream)
        if not 0 <= command.horizon <= int(self._streams.end[command.stream]):
            return InvalidInput(f"{command.horizon} is not an offset of stream {command.stream}")
        horizon = max(command.horizon, self.of(command.stream))
        if horizon:
            self._horizons.put(command.stream, CompactionHorizon(command.stream, horizon))
        return horizon

    @reacts(TopicDeletedEvent)
    def on_topic_deleted(self, event: TopicDeletedEvent, now: Moment) -> None:
        for stream in event.topic.streams:
            self._horizons.pop(stream)

    @property
    def digest(self) -> int:
        return self._horizons.digest

    def encode(self) -> list[CompactionHorizon]:
        return list(self._horizons)

    def load(self, state: list[CompactionHorizon]) -> None:
        for one in state:
            self._horizons.put(one.stream, one)
