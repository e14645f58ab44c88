"""Epochs of exclusive Pulsar producers: each that takes over a stream gets a higher one, and fences those before it."""

from __future__ import annotations

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, MainstemError, ProducerFenced, StreamNotFound
from mainstem.ledger.keyed import Keyed, fields_hash
from mainstem.ledger.section import Command, Moment, Section, applies, reacts
from mainstem.ledger.streams import Streams
from mainstem.ledger.topics import TopicDeletedEvent


class RaiseProducerEpoch(Command, frozen=True, tag=251):
    """An exclusive producer has this epoch: a higher one, or the present one if it had it before."""

    stream: int
    epoch: int
    resumes: bool = False


class StreamEpoch(msgspec.Struct, frozen=True, array_like=True):
    """The highest epoch of a stream; also its form in a checkpoint."""

    stream: int
    epoch: int


class ProducerEpochs(Section[list[StreamEpoch]]):
    """By stream, so there are at most as many as streams."""

    requires = (Streams,)

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._epochs: Keyed[int, StreamEpoch] = Keyed(fields_hash("producer epoch"))

    def of(self, stream: int) -> int:
        """0: the stream had no exclusive producer."""
        found = self._epochs.get(stream)
        return 0 if found is None else found.epoch

    @applies(RaiseProducerEpoch)
    def raise_epoch(self, command: RaiseProducerEpoch, now: Moment) -> int | MainstemError:
        if not self._streams.exists(command.stream):
            return StreamNotFound(command.stream)
        if not 0 < command.epoch <= limits.OFFSET_MAX:
            return InvalidInput(f"{command.epoch} is not an epoch")
        if command.epoch < self.of(command.stream) + (not command.resumes):
            return ProducerFenced("another exclusive producer took over the topic")
        self._epochs.put(command.stream, StreamEpoch(command.stream, command.epoch))
        return command.epoch

    @reacts(TopicDeletedEvent)
    def on_topic_deleted(self, event: TopicDeletedEvent, now: Moment) -> None:
        for stream in event.topic.streams:
            self._epochs.pop(stream)

    @property
    def digest(self) -> int:
        return self._epochs.digest

    def encode(self) -> list[StreamEpoch]:
        return list(self._epochs)

    def load(self, state: list[StreamEpoch]) -> None:
        for one in state:
            self._epochs.put(one.stream, one)
