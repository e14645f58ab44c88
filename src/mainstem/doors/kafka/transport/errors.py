"""The table of Kafka error codes for Mainstem's errors. The closest base class of an error decides."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from mainstem import errors

CODES: dict[type[errors.MainstemError], ErrorCode] = {
    errors.InvalidInput: ErrorCode.invalid_request,
    errors.InvalidName: ErrorCode.invalid_topic_exception,
    errors.InvalidConfig: ErrorCode.invalid_config,
    errors.InvalidBatch: ErrorCode.invalid_record,
    errors.InvalidTimestamp: ErrorCode.invalid_timestamp,
    errors.UnsupportedFormat: ErrorCode.unsupported_for_message_format,
    errors.CorruptBatch: ErrorCode.corrupt_message,
    errors.TooLarge: ErrorCode.message_too_large,
    errors.InvalidTransactionTimeout: ErrorCode.invalid_transaction_timeout,
    errors.NotFound: ErrorCode.unknown_topic_or_partition,
    errors.GroupNotFound: ErrorCode.group_id_not_found,
    errors.TransactionNotFound: ErrorCode.transactional_id_not_found,
    errors.Forbidden: ErrorCode.cluster_authorization_failed,
    errors.TransactionForbidden: ErrorCode.transactional_id_authorization_failed,
    errors.ProducerForbidden: ErrorCode.invalid_producer_id_mapping,
    errors.Throttled: ErrorCode.policy_violation,  # a limit of the server: retrying does not help
    errors.Rejected: ErrorCode.policy_violation,
    errors.TopicExists: ErrorCode.topic_already_exists,
    errors.TopicFull: ErrorCode.policy_violation,
    errors.OutOfOrderSequence: ErrorCode.out_of_order_sequence_number,
    errors.ProducerFenced: ErrorCode.invalid_producer_epoch,
    errors.ProducerUnknown: ErrorCode.invalid_producer_id_mapping,
    errors.InvalidTransaction: ErrorCode.invalid_txn_state,
    errors.BrokerFenced: ErrorCode.not_leader_or_follower,
    errors.InvalidGroupName: ErrorCode.invalid_group_id,
    errors.OffsetMetadataTooLarge: ErrorCode.offset_metadata_too_large,
    errors.NotCoordinator: ErrorCode.not_coordinator,
    errors.UnknownMember: ErrorCode.unknown_member_id,
    errors.IllegalGeneration: ErrorCode.illegal_generation,
    errors.RebalanceInProgress: ErrorCode.rebalance_in_progress,
    errors.GroupLoading: ErrorCode.coordinator_load_in_progress,
    errors.MemberIdRequired: ErrorCode.member_id_required,
    errors.WrongGroupKind: ErrorCode.group_id_not_found,
    errors.InconsistentProtocol: ErrorCode.inconsistent_group_protocol,
    errors.FencedInstance: ErrorCode.fenced_instance_id,
    errors.UnreleasedInstance: ErrorCode.unreleased_instance_id,
    errors.FencedMemberEpoch: ErrorCode.fenced_member_epoch,
    errors.StaleMemberEpoch: ErrorCode.stale_member_epoch,
    errors.UnsupportedAssignor: ErrorCode.unsupported_assignor,
    errors.InvalidRegex: ErrorCode.invalid_regular_expression,
    errors.InvalidTopology: ErrorCode.streams_invalid_topology,
    errors.InvalidSessionTimeout: ErrorCode.invalid_session_timeout,
    errors.RecordNotHeld: ErrorCode.invalid_record_state,
    errors.ShareSessionNotFound: ErrorCode.share_session_not_found,
    errors.InvalidShareSession: ErrorCode.invalid_share_session_epoch,
    errors.ShareSessionsFull: ErrorCode.share_session_limit_reached,
    errors.GroupFull: ErrorCode.group_max_size_reached,
    errors.GroupNotEmpty: ErrorCode.non_empty_group,
    errors.GroupSubscribed: ErrorCode.group_subscribed_to_topic,
    errors.UnstableOffsets: ErrorCode.unstable_offset_commit,
    errors.OffsetOutOfRange: ErrorCode.offset_out_of_range,
    errors.Unavailable: ErrorCode.kafka_storage_error,
    errors.CapacityReached: ErrorCode.policy_violation,
    errors.MainstemError: ErrorCode.unknown_server_error,
}


def code_of(error: BaseException) -> ErrorCode:
    """The code a client gets for an error."""
    for ancestor in type(error).__mro__:
        if ancestor in CODES:
            return CODES[ancestor]
    return ErrorCode.unknown_server_error


def produce_code_of(error: BaseException, *, abortable: bool = False) -> ErrorCode:
    """The same for Produce. Clients take KAFKA_STORAGE_ERROR for "not written" and send the records again, beyond their
    retry limit; REQUEST_TIMED_OUT says that they may have been written.

    `abortable`: they belong to a transaction, and the client knows TRANSACTION_ABORTABLE."""
    if isinstance(error, errors.OutcomeUnknown | errors.Closed):
        return ErrorCode.request_timed_out
    if abortable and isinstance(error, errors.InvalidTransaction):
        return ErrorCode.transaction_abortable
    return code_of(error)


def group_code_of(error: BaseException) -> ErrorCode:
    """The same from a group coordinator: a client that cannot be served now looks for the coordinator again."""
    if isinstance(error, errors.Unavailable | errors.BrokerFenced):
        return ErrorCode.coordinator_not_available
    return code_of(error)


def producer_code_of(error: BaseException, *, fenced: bool, abortable: bool = False) -> ErrorCode:
    """The same from a transaction coordinator. `fenced` and `abortable`: the version knows PRODUCER_FENCED, and
    TRANSACTION_ABORTABLE for operations outside a transaction."""
    if fenced and isinstance(error, errors.ProducerFenced):
        return ErrorCode.producer_fenced
    if abortable and isinstance(error, errors.InvalidTransaction):
        return ErrorCode.transaction_abortable
    return group_code_of(error)
