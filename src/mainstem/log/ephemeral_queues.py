"""Ephemeral queues: leases of jobs that are in memory only, by the ledger's own rules, applied at once."""

from __future__ import annotations

from typing import Any

import msgspec

from mainstem.errors import MainstemError
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.queues import Ack, Bury, Claim, ExpireLeases, Extend, Nack, Queues
from mainstem.ledger.section import Moment
from mainstem.ledger.topics import Topic
from mainstem.log.ephemeral import EphemeralStreams
from mainstem.ports.clock import Clock

QueueCommand = Claim | Ack | Nack | Extend | ExpireLeases | Bury


class EphemeralQueues:
    def __init__(self, ledger: Ledger, streams: EphemeralStreams, clock: Clock) -> None:
        self._ledger = ledger
        self._streams = streams
        self._clock = clock
        self._now = Moment()
        self._numbers: dict[int, int] = {}  # number in memory → stream
        self.queues = Queues(streams.state, self)

    def of_stream(self, number: int) -> Topic | None:
        """Whose queue it is."""
        return self._ledger.topics.of_stream(self._numbers[number])

    def apply(self, command: QueueCommand) -> Any:
        """The result of the command; raises what it is refused with."""
        number = self.number(command.stream)
        self._now.time_ms = max(self._now.time_ms, self._clock.now_ms())
        outcome = self._apply(msgspec.structs.replace(command, stream=number))
        if isinstance(outcome, MainstemError):
            raise outcome
        self._streams.let_go(command.stream)
        return outcome

    def _apply(self, command: QueueCommand) -> Any:
        match command:
            case Claim():
                return self.queues.claim(command, self._now)
            case Ack():
                return self.queues.ack(command, self._now)
            case Nack():
                return self.queues.nack(command, self._now)
            case Extend():
                return self.queues.extend(command, self._now)
            case ExpireLeases():
                return self.queues.expire(command, self._now)
            case Bury():
                return self.queues.bury(command, self._now)

    def number(self, stream: int) -> int:
        """The stream's number in memory. Raises NotFound."""
        number = self._streams.number(stream)
        self._numbers[number] = stream
        return number

    def forget(self, stream: int) -> None:
        gone = [number for number, held in self._numbers.items() if held == stream]
        self.queues.forget_streams(tuple(gone))
        for number in gone:
            del self._numbers[number]
