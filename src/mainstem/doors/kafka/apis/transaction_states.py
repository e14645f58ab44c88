"""Kafka's names for the phases of a transaction."""

from __future__ import annotations

from mainstem.broker.transactions.service import TransactionPhase

STATES = {
    TransactionPhase.EMPTY: "Empty",
    TransactionPhase.OPEN: "Ongoing",
    TransactionPhase.COMMITTED: "CompleteCommit",
    TransactionPhase.ABORTED: "CompleteAbort",
}

# Names a client may filter by. Kafka's other states are transitions that do not occur here.
KNOWN_STATES = frozenset((*STATES.values(), "PrepareCommit", "PrepareAbort", "PrepareEpochFence", "Dead"))
