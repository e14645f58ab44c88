"""Access rules as every door writes them: what they cover, and which operations there are."""

from __future__ import annotations

from enum import IntEnum


class ResourceType(IntEnum):
    """Kafka's numbers; above 100 what Kafka does not have."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    QUEUE = 101  # rules of the topic apply as well
    ROUTER = 102
    TABLE = 103  # rules of the topic that it shows apply as well
    NAMESPACE = 104  # of the Iceberg catalog
    SUBJECT = 105  # of the schema registry
    BUCKET = 106  # of the S3 door; an object in it is `bucket/key`


class Operation(IntEnum):
    """Kafka's numbers."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    TWO_PHASE_COMMIT = 15


CLUSTER_NAME = "kafka-cluster"
AUDIT_TOPIC = "__audit"  # the audit log: who did which administrative operation, and what was denied
EVERYTHING = "*"
EVERYBODY = "User:*"
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
