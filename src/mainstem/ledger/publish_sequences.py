"""Deduplication of Pulsar producers: the last sequence number that each producer published to a stream, by its name.

A producer numbers its messages with rising numbers, gaps allowed. `PublishSequence` stands right after the append of
its messages in the same entry. It admits them only if their first number is new, so a message that a producer sends
again is stored once, whichever broker gets it, also after a restart.

Messages of an exclusive producer are stored only as long as no other one took over the stream: `PublishSequence` names
its epoch, and so does `PublishExclusively`, for a stream without deduplication.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, MainstemError, ProducerFenced, Rejected
from mainstem.ledger.appends import AppendCode, AppendOutcome
from mainstem.ledger.digest import hash_fields
from mainstem.ledger.keyed import LatestByKey
from mainstem.ledger.producer_epochs import ProducerEpochs
from mainstem.ledger.section import Command, Moment, Section, admits_append, applies, reacts
from mainstem.ledger.topics import TopicDeletedEvent

_FENCED = "another exclusive producer took over the topic"
PUBLISHERS_MAX = 200_000  # producers of all streams: those that published longest ago are forgotten


class PublishSequence(Command, frozen=True, tag=250):
    """The append right before this one has the numbers `first` to `last` of a producer."""

    stream: int
    name: str
    first: int
    last: int
    epoch: int = 0  # of an exclusive producer


class PublishExclusively(Command, frozen=True, tag=281):
    """The append right before this one is of the exclusive producer with this epoch."""

    stream: int
    epoch: int


class PublisherState(msgspec.Struct, frozen=True, array_like=True):
    """One producer of a stream; also its form in a checkpoint."""

    stream: int
    name: str
    last: int


@dataclass(frozen=True, slots=True)
class SequencePublished:
    base: int  # offset of the first message; -1 if it is a duplicate
    duplicate: bool


class PublishSequences(Section[list[PublisherState]]):
    """Producers by stream and name, in the order of their last message."""

    requires = (ProducerEpochs,)

    def __init__(self, epochs: ProducerEpochs) -> None:
        self._epochs = epochs
        self._publishers: LatestByKey[tuple[int, str], PublisherState] = LatestByKey(_hash)

    def last(self, stream: int, name: str) -> int:
        """The last number of a producer; -1 if none is known."""
        found = self._publishers.get((stream, name))
        return -1 if found is None else found.last

    @admits_append(PublishSequence)
    def admits(self, command: PublishSequence) -> bool:
        return (
            _bad(command) is None
            and command.first > self.last(command.stream, command.name)
            and not self._fenced(command)
        )

    @admits_append(PublishExclusively)
    def admits_exclusively(self, command: PublishExclusively) -> bool:
        return not self._fenced(command)

    def _fenced(self, command: PublishSequence | PublishExclusively) -> bool:
        """Whether another exclusive producer took over."""
        return 0 < command.epoch < self._epochs.of(command.stream)

    @applies(PublishSequence)
    def publish(self, command: PublishSequence, now: Moment) -> SequencePublished | MainstemError:
        before = now.before
        if wrong := _bad(command):
            return wrong
        if not isinstance(before, AppendOutcome) or len(before.code) != 1:
            return InvalidInput("sequence numbers are published in the entry that appends the messages")
        code = int(before.code[0])
        if code == AppendCode.OVERTAKEN:
            return ProducerFenced(_FENCED) if self._fenced(command) else SequencePublished(-1, True)
        if code != AppendCode.OK:
            return Rejected("the messages were not appended")
        self._put(PublisherState(command.stream, command.name, command.last))
        return SequencePublished(int(before.base[0]), False)

    @applies(PublishExclusively)
    def publish_exclusively(
        self, command: PublishExclusively, now: Moment
    ) -> SequencePublished | MainstemError:
        before = now.before
        if not isinstance(before, AppendOutcome) or len(before.code) != 1:
            return InvalidInput("an epoch is named in the entry that appends the messages")
        code = int(before.code[0])
        if code == AppendCode.OVERTAKEN:
            return ProducerFenced(_FENCED)
        if code != AppendCode.OK:
            return Rejected("the messages were not appended")
        return SequencePublished(int(before.base[0]), False)

    @reacts(TopicDeletedEvent)
    def on_topic_deleted(self, event: TopicDeletedEvent, now: Moment) -> None:
        for one in [one for one in self._publishers.unordered() if one.stream in event.topic.streams]:
            self._publishers.pop((one.stream, one.name))

    def _put(self, one: PublisherState) -> None:
        self._publishers.put((one.stream, one.name), one)
        self._publishers.evict(PUBLISHERS_MAX)

    @property
    def digest(self) -> int:
        return self._publishers.digest

    def encode(self) -> list[PublisherState]:
        return list(self._publishers)

    def load(self, state: list[PublisherState]) -> None:
        for one in state:
            self._put(one)


def _bad(command: PublishSequence) -> InvalidInput | None:
    if not 1 <= len(command.name) <= limits.NAME_CHARS_MAX:
        return InvalidInput(f"a producer has a name of 1 to {limits.NAME_CHARS_MAX} characters")
    if not 0 <= command.first <= command.last <= limits.OFFSET_MAX:
        return InvalidInput(f"{command.first} to {command.last} are not sequence numbers")
    return None


def _hash(one: PublisherState) -> int:
    return hash_fields("publisher", one.stream, one.name, one.last)
