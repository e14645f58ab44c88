"""Producer ids: whose they are. A batch that carries another client's id could take that client's place in a stream."""

from __future__ import annotations

from collections.abc import Callable

from mainstem.broker.access.principal import Principal
from mainstem.errors import ProducerForbidden, TransactionForbidden
from mainstem.ledger.producers import Producers
from mainstem.ledger.transactions import Transactions
from mainstem.records.header import SliceFacts

_SINK = "sink/"  # begins the transactional ids of sinks: sink/query/run/attempt


class ProducerRights:
    """What one client may write as a producer, in requests that name this transactional id."""

    __slots__ = ("_checked", "_may_write", "_principal", "_producers", "_transactional_id", "_transactions")

    def __init__(
        self,
        transactions: Transactions,
        producers: Producers,
        principal: Principal,
        may_write: Callable[[str], bool],
        transactional_id: str | None = None,
    ) -> None:
        """`may_write`: whether the access rules let the client write with a transactional id."""
        self._transactions = transactions
        self._producers = producers
        self._principal = principal
        self._may_write = may_write
        self._transactional_id = transactional_id
        self._checked: tuple[int, bool] | None = (
            None  # the producer of the last batch, which is this client's
        )

    def check(self, facts: SliceFacts) -> None:
        """Raises TransactionForbidden, ProducerForbidden."""
        if (facts.producer, facts.transactional) == self._checked:
            return
        transaction = self._transactions.of_producer(facts.producer)
        if transaction is not None:
            if transaction.id != self._transactional_id and not self._owns(transaction.id):
                raise TransactionForbidden(
                    f"producer {facts.producer} belongs to a transactional id that this client may not write with"
                )
        elif facts.transactional and self._transactional_id is None:
            raise TransactionForbidden(
                "a transactional batch needs a transactional id that its sender may write with"
            )
        elif not self._producers.may_write(facts.producer, self._principal.name):
            raise ProducerForbidden(f"producer {facts.producer} belongs to another client")
        else:
            return  # nothing is known of the producer yet, so the next batch is checked again
        self._checked = facts.producer, facts.transactional

    def check_transaction(self, producer: int) -> None:
        """Raises TransactionForbidden for the producer of a transaction that is not this client's."""
        transaction = self._transactions.of_producer(producer)
        if transaction is not None and not self._owns(transaction.id):
            raise TransactionForbidden(
                f"producer {producer} belongs to a transactional id that this client may not write with"
            )

    def _owns(self, id: str) -> bool:
        if not id.startswith(_SINK):
            return self._may_write(id)
        query = id.removeprefix(_SINK).rsplit("/", 2)[0]
        return query.startswith(f"{self._principal.name}/") or self._may_write(query)
