"""Transactions of Pulsar clients: transactions of the ledger, which begin with NEW_TXN and end with END_TXN.

The id of a transaction is (0, producer id): one coordinator serves all clients, on whichever broker they ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem import limits
from mainstem.broker.access.rules import Operation
from mainstem.broker.streams import stream_of
from mainstem.broker.transactions.service import OwnedTransaction, ProducerStamp
from mainstem.doors.pulsar.errors import PulsarRefusal, ServerError
from mainstem.doors.pulsar.wire import simple_frame

if TYPE_CHECKING:
    from mainstem.doors.pulsar.connection import PulsarConnection

COORDINATOR_TOPIC = (
    "pulsar/system/transaction_coordinator_assign"  # clients look it up to find the coordinators
)
DEFAULT_TIMEOUT_MS = 60_000

_COMMIT = 0
_PRODUCER_MAX = 1 << 62


def is_coordinator(topic: str) -> bool:
    """Whether clients look for the coordinator, not for a topic."""
    return topic.removeprefix("persistent://").partition("-partition-")[0] == COORDINATOR_TOPIC


def in_transaction(command: Any) -> bool:
    """Whether a SEND or an ACK belongs to a transaction."""
    return bool(command.HasField("txnid_most_bits") or command.HasField("txnid_least_bits"))


def transaction_of(connection: PulsarConnection, command: Any) -> OwnedTransaction:
    """The open transaction that a command names. Raises PulsarRefusal."""
    number = command.txnid_least_bits
    found = None
    if not command.txnid_most_bits and number < _PRODUCER_MAX:
        found = connection.context.broker.transactions.of_producer(number)
    if found is None:
        raise PulsarRefusal(
            ServerError.TRANSACTION_NOT_FOUND, f"transaction {number} is not open: it ended, or timed out"
        )
    if found.owner != connection.caller.principal.name:
        raise PulsarRefusal(ServerError.AUTHORIZATION, f"transaction {number} belongs to another client")
    return found


async def tc_client_connect(connection: PulsarConnection, request: Any) -> None:
    connection.write(simple_frame("tc_client_connect_response", request_id=request.request_id))


async def new_txn(connection: PulsarConnection, request: Any) -> None:
    # Clients send milliseconds, whatever the name of the field says.
    timeout_ms = min(request.txn_ttl_seconds or DEFAULT_TIMEOUT_MS, limits.TRANSACTION_TIMEOUT_MS_MAX)
    context = connection.context
    producer = await context.broker.transactions.begin(
        f"pulsar/{context.new_token()}{context.new_token()}", timeout_ms, connection.caller.principal.name
    )
    connection.write(
        simple_frame(
            "new_txn_response", request_id=request.request_id, txnid_least_bits=producer, txnid_most_bits=0
        )
    )


async def add_partition_to_txn(connection: PulsarConnection, request: Any) -> None:
    found = transaction_of(connection, request)
    streams = []
    for text in request.partitions:
        name, topic = await connection.context.lookup.open(text, connection.caller)
        connection.caller.check(Operation.WRITE, topic.name)
        streams.append(stream_of(topic, max(name.partition, 0)))
    await connection.context.broker.transactions.add_partitions(found.stamp, streams)
    _answer(connection, "add_partition_to_txn_response", request)


async def add_subscription_to_txn(connection: PulsarConnection, request: Any) -> None:
    transaction_of(connection, request)
    for row in request.subscription:
        name, _ = connection.context.lookup.find(row.topic, connection.caller)
        connection.caller.check(Operation.READ, name.name)
        connection.caller.check_subscription(name.name, row.subscription)
    _answer(connection, "add_subscription_to_txn_response", request)


async def end_txn(connection: PulsarConnection, request: Any) -> None:
    number = min(request.txnid_least_bits, _PRODUCER_MAX)
    transactions = connection.context.broker.transactions
    if request.txnid_most_bits or transactions.of_producer(number) is None:
        stamp = ProducerStamp("", number, 0)  # the ledger knows whether it ended the same way
    else:
        stamp = transaction_of(connection, request).stamp
    await transactions.end(stamp, commit=request.txn_action == _COMMIT)
    _answer(connection, "end_txn_response", request)


def _answer(connection: PulsarConnection, name: str, request: Any) -> None:
    connection.write(
        simple_frame(
            name,
            request_id=request.request_id,
            txnid_least_bits=request.txnid_least_bits,
            txnid_most_bits=request.txnid_most_bits,
        )
    )
