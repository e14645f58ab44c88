"""Commits of the embedded log in the thread of their caller, without the event loop."""

from __future__ import annotations

from mainstem.broker.broker import Broker
from mainstem.client.gate import LoopGate


class DirectCommits:
    def __init__(self, gate: LoopGate, broker: Broker) -> None:
        self._gate = gate
        self._broker = broker
        self._commits = broker.log.direct

    def commit_offset(self, group: str, topic: str, offset: int, partition: int) -> bool:
        """Store a group's next offset to read. False: the loop has to do it."""
        gate = self._gate
        if gate.loop_waits:
            return False
        with gate.lock:
            proposed = self._broker.commit_offset_now(group, topic, offset, partition)
        if gate.woken:
            gate.wake()
        if proposed is None:
            return False
        outcome, position = proposed
        self.sync(position)
        outcome.result()
        return True

    def sync(self, position: int) -> None:
        """Sync a commit and publish it. Meanwhile other threads write; the next sync covers all of them."""
        gate, commits = self._gate, self._commits
        try:
            seconds = commits.sync_now(position)
        except BaseException as error:
            with gate.lock:
                commits.abandon_sync(error)
            if gate.woken:
                gate.wake()
            raise
        with gate.lock:
            commits.publish_synced(seconds)
        if gate.woken:
            gate.wake()
