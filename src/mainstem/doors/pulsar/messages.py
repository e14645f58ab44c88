"""The messages of the Pulsar protocol, as a table, and the classes that encode and decode them.

One line is a message: its name, then its fields as `name:type=number`. `*` after the type: repeated. `(value)` at the
end: the default. Types: `u4 u8 i4 i8` are varints, `?` a boolean, `d` a double, `s` text, `b` bytes, else a message.
Enums travel as `i4`. Text that clients choose freely, and that records carry as bytes, is `b`: both are the same on
the wire, and `b` takes bytes that are not UTF-8.
"""

from __future__ import annotations

import re
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TABLE = """
Schema name:s=1 schema_data:b=3 type:i4=4 properties:KeyValue*=5
MessageIdData ledgerId:u8=1 entryId:u8=2 partition:i4=3(-1) batch_index:i4=4(-1) ack_set:i8*=5 batch_size:i4=6
KeyValue key:b=1 value:b=2
IntRange start:i4=1 end:i4=2
EncryptionKeys key:s=1 value:b=2 metadata:KeyValue*=3
MessageMetadata producer_name:b=1 sequence_id:u8=2 publish_time:u8=3 properties:KeyValue*=4 replicated_from:s=5 \
partition_key:b=6 replicate_to:s*=7 compression:i4=8 uncompressed_size:u4=9 num_messages_in_batch:i4=11(1) \
event_time:u8=12 encryption_keys:EncryptionKeys*=13 encryption_algo:s=14 encryption_param:b=15 schema_version:b=16 \
partition_key_b64_encoded:?=17 ordering_key:b=18 deliver_at_time:i8=19 marker_type:i4=20 txnid_least_bits:u8=22 \
txnid_most_bits:u8=23 highest_sequence_id:u8=24 null_value:?=25 uuid:s=26 num_chunks_from_msg:i4=27 \
total_chunk_msg_size:i4=28 chunk_id:i4=29 null_partition_key:?=30
SingleMessageMetadata properties:KeyValue*=1 partition_key:b=2 payload_size:i4=3 compacted_out:?=4 event_time:u8=5 \
partition_key_b64_encoded:?=6 ordering_key:b=7 sequence_id:u8=8 null_value:?=9 null_partition_key:?=10
FeatureFlags supports_auth_refresh:?=1 supports_broker_entry_metadata:?=2 supports_partial_producer:?=3 \
supports_topic_watchers:?=4 supports_get_partitioned_metadata_without_auto_creation:?=5
CommandConnect client_version:s=1 auth_method:i4=2 auth_data:b=3 protocol_version:i4=4 auth_method_name:s=5 \
proxy_to_broker_url:s=6 original_principal:s=7 original_auth_data:s=8 original_auth_method:s=9 \
feature_flags:FeatureFlags=10
CommandConnected server_version:s=1 protocol_version:i4=2 max_message_size:i4=3 feature_flags:FeatureFlags=4
AuthData auth_method_name:s=1 auth_data:b=2
CommandAuthResponse client_version:s=1 response:AuthData=2 protocol_version:i4=3
CommandAuthChallenge server_version:s=1 challenge:AuthData=2 protocol_version:i4=3
KeySharedMeta keySharedMode:i4=1 hashRanges:IntRange*=3 allowOutOfOrderDelivery:?=4
CommandSubscribe topic:s=1 subscription:s=2 subType:i4=3 consumer_id:u8=4 request_id:u8=5 consumer_name:s=6 \
priority_level:i4=7 durable:?=8(true) start_message_id:MessageIdData=9 metadata:KeyValue*=10 read_compacted:?=11 \
schema:Schema=12 initialPosition:i4=13 replicate_subscription_state:?=14 force_topic_creation:?=15(true) \
start_message_rollback_duration_sec:u8=16 keySharedMeta:KeySharedMeta=17 subscription_properties:KeyValue*=18 \
consumer_epoch:u8=19
CommandPartitionedTopicMetadata topic:s=1 request_id:u8=2 metadata_auto_creation_enabled:?=6(true)
CommandPartitionedTopicMetadataResponse partitions:u4=1 request_id:u8=2 response:i4=3 error:i4=4 message:s=5
CommandLookupTopic topic:s=1 request_id:u8=2 authoritative:?=3 advertised_listener_name:s=7
CommandLookupTopicResponse brokerServiceUrl:s=1 brokerServiceUrlTls:s=2 response:i4=3 request_id:u8=4 \
authoritative:?=5 error:i4=6 message:s=7 proxy_through_service_url:?=8
CommandProducer topic:s=1 producer_id:u8=2 request_id:u8=3 producer_name:s=4 encrypted:?=5 metadata:KeyValue*=6 \
schema:Schema=7 epoch:u8=8 user_provided_producer_name:?=9(true) producer_access_mode:i4=10 topic_epoch:u8=11 \
txn_enabled:?=12 initial_subscription_name:s=13
CommandSend producer_id:u8=1 sequence_id:u8=2 num_messages:i4=3(1) txnid_least_bits:u8=4 txnid_most_bits:u8=5 \
highest_sequence_id:u8=6 is_chunk:?=7 marker:?=8
CommandSendReceipt producer_id:u8=1 sequence_id:u8=2 message_id:MessageIdData=3 highest_sequence_id:u8=4
CommandSendError producer_id:u8=1 sequence_id:u8=2 error:i4=3 message:s=4
CommandMessage consumer_id:u8=1 message_id:MessageIdData=2 redelivery_count:u4=3 ack_set:i8*=4 consumer_epoch:u8=5
CommandAck consumer_id:u8=1 ack_type:i4=2 message_id:MessageIdData*=3 validation_error:i4=4 txnid_least_bits:u8=6 \
txnid_most_bits:u8=7 request_id:u8=8
CommandAckResponse consumer_id:u8=1 txnid_least_bits:u8=2 txnid_most_bits:u8=3 error:i4=4 message:s=5 request_id:u8=6
CommandActiveConsumerChange consumer_id:u8=1 is_active:?=2
CommandFlow consumer_id:u8=1 messagePermits:u4=2
CommandUnsubscribe consumer_id:u8=1 request_id:u8=2 force:?=3
CommandSeek consumer_id:u8=1 request_id:u8=2 message_id:MessageIdData=3 message_publish_time:u8=4
CommandReachedEndOfTopic consumer_id:u8=1
CommandCloseProducer producer_id:u8=1 request_id:u8=2
CommandCloseConsumer consumer_id:u8=1 request_id:u8=2
CommandRedeliverUnacknowledgedMessages consumer_id:u8=1 message_ids:MessageIdData*=2 consumer_epoch:u8=3
CommandSuccess request_id:u8=1 schema:Schema=2
CommandProducerSuccess request_id:u8=1 producer_name:s=2 last_sequence_id:i8=3(-1) schema_version:b=4 topic_epoch:u8=5 \
producer_ready:?=6(true)
CommandError request_id:u8=1 error:i4=2 message:s=3
CommandPing
CommandPong
CommandConsumerStats request_id:u8=1 consumer_id:u8=4
CommandConsumerStatsResponse request_id:u8=1 error_code:i4=2 error_message:s=3 msgRateOut:d=4 msgThroughputOut:d=5 \
msgRateRedeliver:d=6 consumerName:s=7 availablePermits:u8=8 unackedMessages:u8=9 blockedConsumerOnUnackedMsgs:?=10 \
address:s=11 connectedSince:s=12 type:s=13 msgRateExpired:d=14 msgBacklog:u8=15 messageAckRate:d=16
CommandGetLastMessageId consumer_id:u8=1 request_id:u8=2
CommandGetLastMessageIdResponse last_message_id:MessageIdData=1 request_id:u8=2 \
consumer_mark_delete_position:MessageIdData=3
CommandGetTopicsOfNamespace request_id:u8=1 namespace:s=2 mode:i4=3 topics_pattern:s=4 topics_hash:s=5
CommandGetTopicsOfNamespaceResponse request_id:u8=1 topics:s*=2 filtered:?=3 topics_hash:s=4 changed:?=5(true)
CommandWatchTopicList request_id:u8=1 watcher_id:u8=2 namespace:s=3 topics_pattern:s=4 topics_hash:s=5
CommandWatchTopicListSuccess request_id:u8=1 watcher_id:u8=2 topic:s*=3 topics_hash:s=4
CommandWatchTopicUpdate watcher_id:u8=1 new_topics:s*=2 deleted_topics:s*=3 topics_hash:s=4
CommandWatchTopicListClose request_id:u8=1 watcher_id:u8=2
CommandGetSchema request_id:u8=1 topic:s=2 schema_version:b=3
CommandGetSchemaResponse request_id:u8=1 error_code:i4=2 error_message:s=3 schema:Schema=4 schema_version:b=5
CommandGetOrCreateSchema request_id:u8=1 topic:s=2 schema:Schema=3
CommandGetOrCreateSchemaResponse request_id:u8=1 error_code:i4=2 error_message:s=3 schema_version:b=4
CommandTcClientConnectRequest request_id:u8=1 tc_id:u8=2
CommandTcClientConnectResponse request_id:u8=1 error:i4=2 message:s=3
CommandNewTxn request_id:u8=1 txn_ttl_seconds:u8=2 tc_id:u8=3
CommandNewTxnResponse request_id:u8=1 txnid_least_bits:u8=2 txnid_most_bits:u8=3 error:i4=4 message:s=5
CommandAddPartitionToTxn request_id:u8=1 txnid_least_bits:u8=2 txnid_most_bits:u8=3 partitions:s*=4
CommandAddPartitionToTxnResponse request_id:u8=1 txnid_least_bits:u8=2 txnid_most_bits:u8=3 error:i4=4 message:s=5
NamedSubscription topic:s=1 subscription:s=2
CommandAddSubscriptionToTxn request_id:u8=1 txnid_least_bits:u8=2 txnid_most_bits:u8=3 subscription:NamedSubscription*=4
CommandAddSubscriptionToTxnResponse request_id:u8=1 txnid_least_bits:u8=2 txnid_most_bits:u8=3 error:i4=4 message:s=5
CommandEndTxn request_id:u8=1 txnid_least_bits:u8=2 txnid_most_bits:u8=3 txn_action:i4=4
CommandEndTxnResponse request_id:u8=1 txnid_least_bits:u8=2 txnid_most_bits:u8=3 error:i4=4 message:s=5
BaseCommand type:i4=1 connect:CommandConnect=2 connected:CommandConnected=3 subscribe:CommandSubscribe=4 \
producer:CommandProducer=5 send:CommandSend=6 send_receipt:CommandSendReceipt=7 send_error:CommandSendError=8 \
message:CommandMessage=9 ack:CommandAck=10 flow:CommandFlow=11 unsubscribe:CommandUnsubscribe=12 \
success:CommandSuccess=13 error:CommandError=14 close_producer:CommandCloseProducer=15 \
close_consumer:CommandCloseConsumer=16 producer_success:CommandProducerSuccess=17 ping:CommandPing=18 \
pong:CommandPong=19 redeliver:CommandRedeliverUnacknowledgedMessages=20 \
partitioned_metadata:CommandPartitionedTopicMetadata=21 \
partitioned_metadata_response:CommandPartitionedTopicMetadataResponse=22 lookup:CommandLookupTopic=23 \
lookup_response:CommandLookupTopicResponse=24 consumer_stats:CommandConsumerStats=25 \
consumer_stats_response:CommandConsumerStatsResponse=26 reached_end_of_topic:CommandReachedEndOfTopic=27 \
seek:CommandSeek=28 get_last_message_id:CommandGetLastMessageId=29 \
get_last_message_id_response:CommandGetLastMessageIdResponse=30 \
active_consumer_change:CommandActiveConsumerChange=31 get_topics_of_namespace:CommandGetTopicsOfNamespace=32 \
get_topics_of_namespace_response:CommandGetTopicsOfNamespaceResponse=33 get_schema:CommandGetSchema=34 \
get_schema_response:CommandGetSchemaResponse=35 auth_challenge:CommandAuthChallenge=36 \
auth_response:CommandAuthResponse=37 ack_response:CommandAckResponse=38 \
get_or_create_schema:CommandGetOrCreateSchema=39 \
get_or_create_schema_response:CommandGetOrCreateSchemaResponse=40 new_txn:CommandNewTxn=50 \
new_txn_response:CommandNewTxnResponse=51 add_partition_to_txn:CommandAddPartitionToTxn=52 \
add_partition_to_txn_response:CommandAddPartitionToTxnResponse=53 \
add_subscription_to_txn:CommandAddSubscriptionToTxn=54 \
add_subscription_to_txn_response:CommandAddSubscriptionToTxnResponse=55 end_txn:CommandEndTxn=56 \
end_txn_response:CommandEndTxnResponse=57 tc_client_connect:CommandTcClientConnectRequest=62 \
tc_client_connect_response:CommandTcClientConnectResponse=63 watch_topic_list:CommandWatchTopicList=64 \
watch_topic_list_success:CommandWatchTopicListSuccess=65 watch_topic_update:CommandWatchTopicUpdate=66 \
watch_topic_list_close:CommandWatchTopicListClose=67
"""

_PACKAGE = "mainstem.pulsar"
_FIELD = re.compile(r"(\w+):(\w+|\?)(\*?)=(\d+)(?:\(([^)]*)\))?")
_FIELD_TYPES = {
    "u4": descriptor_pb2.FieldDescriptorProto.TYPE_UINT32,
    "u8": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
    "i4": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "i8": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "?": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "d": descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE,
    "s": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "b": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
}


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="mainstem/pulsar.proto", package=_PACKAGE, syntax="editions"
    )
    file.edition = descriptor_pb2.EDITION_2023
    features = file.options.features  # as proto2, which Pulsar uses, but for the check
    features.repeated_field_encoding = features.EXPANDED
    features.utf8_validation = features.VERIFY  # without it, text that is not UTF-8 is parsed as bytes
    for line in _TABLE.strip().splitlines():
        name, _, fields = line.partition(" ")
        message = file.message_type.add(name=name)
        for field, kind, repeated, number, default in _FIELD.findall(fields):
            added = message.field.add(name=field, number=int(number))
            added.label = added.LABEL_REPEATED if repeated else added.LABEL_OPTIONAL
            if kind in _FIELD_TYPES:
                added.type = _FIELD_TYPES[kind]
            else:
                added.type = added.TYPE_MESSAGE
                added.type_name = f".{_PACKAGE}.{kind}"
            if default:
                added.default_value = default
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        message.name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{_PACKAGE}.{message.name}")
        )
        for message in file.message_type
    }


_MESSAGES = _classes()

BaseCommand: Any = _MESSAGES["BaseCommand"]
MessageIdData: Any = _MESSAGES["MessageIdData"]
MessageMetadata: Any = _MESSAGES["MessageMetadata"]
SingleMessageMetadata: Any = _MESSAGES["SingleMessageMetadata"]

TYPES: dict[int, str] = {
    field.number: field.name for field in BaseCommand.DESCRIPTOR.fields if field.name != "type"
}  # of commands: the number of a type is that of its field
NUMBERS = {name: number for number, name in TYPES.items()}
