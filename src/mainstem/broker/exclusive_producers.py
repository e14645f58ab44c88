"""Exclusive producers of a partition: the epoch that distinguishes the present one from earlier ones."""

from __future__ import annotations

from mainstem.ledger.producer_epochs import RaiseProducerEpoch
from mainstem.log.log import Log


class ExclusiveProducers:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._epochs = log.ledger.producer_epochs

    def epoch(self, stream: int) -> int:
        """The highest epoch of an exclusive producer; 0: there was none."""
        return self._epochs.of(stream)

    async def take(self, stream: int, epoch: int, *, resumes: bool) -> None:
        """Make an epoch durable; `resumes`: its producer had it before.

        Raises ProducerFenced if another producer took over, StreamNotFound."""
        await self._log.propose(RaiseProducerEpoch(stream, epoch, resumes))
