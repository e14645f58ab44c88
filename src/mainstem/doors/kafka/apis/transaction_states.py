"""What Kafka calls the phases of a transaction."""

from __future__ import annotations

from mainstem.broker.transactions.service import TransactionPhase

STATES = {
    TransactionPhase.EMPTY: "Empty",
    TransactionPhase.OPEN: "Ongoing",
    TransactionPhase.COMMITTED: "CompleteCommit",
    TransactionPhase.ABORTED: "CompleteAbort",
}

# Names a client may ask for. The others are states between two of ours, in which nothing ever is.
KNOWN_STATES = frozenset((*STATES.values(), "PrepareCommit", "PrepareAbort", "PrepareEpochFence", "Dead"))
