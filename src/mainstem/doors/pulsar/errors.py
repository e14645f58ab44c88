"""The error codes of the Pulsar protocol, and which error of the broker gets which."""

from __future__ import annotations

from enum import IntEnum

from mainstem import errors
from mainstem.errors import MainstemError


class ServerError(IntEnum):
    UNKNOWN = 0
    METADATA = 1
    PERSISTENCE = 2
    AUTHENTICATION = 3
    AUTHORIZATION = 4
    CONSUMER_BUSY = 5
    SERVICE_NOT_READY = 6
    QUOTA_HELD = 7
    QUOTA_EXCEEDED = 8
    CHECKSUM = 9
    TOPIC_NOT_FOUND = 11
    SUBSCRIPTION_NOT_FOUND = 12
    CONSUMER_NOT_FOUND = 13
    TOPIC_TERMINATED = 15
    PRODUCER_BUSY = 16
    INVALID_TOPIC_NAME = 17
    INCOMPATIBLE_SCHEMA = 18
    CONSUMER_ASSIGN = 19
    TRANSACTION_COORDINATOR_NOT_FOUND = 20
    INVALID_TRANSACTION = 21
    NOT_ALLOWED = 22
    TRANSACTION_CONFLICT = 23
    TRANSACTION_NOT_FOUND = 24
    PRODUCER_FENCED = 25


class PulsarRefusal(MainstemError):
    """A call that the door itself refuses, with the code that the client gets."""

    def __init__(self, code: ServerError, message: str) -> None:
        super().__init__(message)
        self.code = code


# The first class that fits counts.
_CODES: tuple[tuple[type[MainstemError], ServerError], ...] = (
    (errors.CorruptBatch, ServerError.CHECKSUM),
    (errors.InvalidName, ServerError.INVALID_TOPIC_NAME),
    (errors.IncompatibleSchema, ServerError.INCOMPATIBLE_SCHEMA),
    (errors.InvalidInput, ServerError.NOT_ALLOWED),
    (errors.Unauthorized, ServerError.AUTHENTICATION),
    (errors.AccessDenied, ServerError.AUTHORIZATION),
    (errors.SubscriptionNotFound, ServerError.SUBSCRIPTION_NOT_FOUND),
    (errors.NotFound, ServerError.TOPIC_NOT_FOUND),
    (errors.SubscriptionBusy, ServerError.CONSUMER_BUSY),
    (errors.TransactionConflict, ServerError.TRANSACTION_CONFLICT),
    (errors.ProducerUnknown, ServerError.TRANSACTION_NOT_FOUND),
    (errors.InvalidTransaction, ServerError.INVALID_TRANSACTION),
    (errors.ProducerFenced, ServerError.INVALID_TRANSACTION),
    (errors.SubscriptionMoved, ServerError.SERVICE_NOT_READY),
    (errors.TopicTerminated, ServerError.TOPIC_TERMINATED),
    (errors.BacklogHeld, ServerError.QUOTA_HELD),
    (errors.TopicFull, ServerError.QUOTA_EXCEEDED),
    (errors.CapacityReached, ServerError.QUOTA_EXCEEDED),
    (errors.LimitReached, ServerError.NOT_ALLOWED),
    (errors.Rejected, ServerError.NOT_ALLOWED),
    (errors.Unavailable, ServerError.SERVICE_NOT_READY),
)


def code_of(error: MainstemError) -> ServerError:
    if isinstance(error, PulsarRefusal):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), ServerError.UNKNOWN)
