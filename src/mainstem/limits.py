"""Limits that several modules share, with the unit last in the name. A limit of one module stands in that module."""

from __future__ import annotations

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

# Names
NAME_CHARS_MAX = 255
PARTITIONS_PER_TOPIC_MAX = 10_000
TOPICS_MAX = 100_000
PARTITIONS_MAX = 200_000  # of all topics
NAMESPACES_MAX = 10_000
STREAMS_MAX = (1 << 32) - 1  # stream numbers ever handed out; a slice row holds 32 bits
OFFSET_MAX = 1 << 62  # of an offset or a byte count, so that sums stay within 64 bits

# Records
RECORD_BYTES_MAX = 64 * MIB  # one record, decoded
BATCH_BYTES_MAX = 64 * MIB  # one record batch as stored; a topic's own limit is usually far lower
BATCH_RECORDS_MAX = 1 << 20  # records in one batch
INVALID_RECORDS_NAMED_MAX = 100  # of a refused append, in its error
CRC_JOINED_BYTES_MIN = 256 * KIB  # for a smaller slice, computing the CRC is faster than combining it
BATCH_DECODED_BYTES_MAX = 256 * MIB  # decompressed size of one batch
DECODED_INLINE_BYTES_MAX = 4 * MIB  # a compressed batch up to this size is decoded on the event loop
HEADERS_PER_RECORD_MAX = 10_000
INTERPRETED_RECORDS_MAX = 48  # up to here plain Python is faster than a call of a compiled kernel
ZSTD_WINDOW_BYTES_MAX = 128 * MIB  # memory that a zstd frame may require

# Records in Parquet
REPORTS_OF_A_KIND_MAX = 64  # pipelines, or drivers of the lake, whose last report is kept
LAKE_TOPICS_MEASURED_MAX = 50  # topics whose lag is published as a metric
PIPELINE_OUTPUTS_MAX = 64  # in a report
PIPELINE_TOPICS_MAX = 256  # in a report
PIPELINE_POSITIONS_MAX = 4_096  # partitions in a report, for each output
PIPELINE_ERROR_CHARS_MAX = 2_000

# Commit path
SATURATED_S = (
    0.1  # what is pending takes longer to write: the commit path is saturated, and appends wait by priority
)
SATURATED_BYTES_MIN = 4 * MIB  # bounds of what is pending then
SATURATED_BYTES_MAX = 16 * MIB  # two commits: one is written while the next one fills
SATURATION_SAMPLE_BYTES_MIN = 1 * MIB  # payload of the commits by which the rate of writes is measured
OLDEST_FIRST_EVERY = (
    16  # admissions: one of them goes to the append that waited longest, whatever its priority
)
ENTRY_BYTES_MAX = 64 * MIB  # one encoded entry
DIGEST_EVERY_COMMITS = 4096

# Local storage
SEGMENT_BYTES = 128 * MIB  # a WAL file is sealed above this size
CHECKPOINT_EVERY_BYTES = 512 * MIB  # WAL written between two checkpoints, which bounds replay
CHECKPOINTS_KEPT = 2
DIVERGENCES_SHOWN = 100  # differences listed when digests disagree
FOLLOW_CHUNK_COMMITS = 4096  # commits returned at a time by `follow`
FOLLOW_WINDOW_BYTES = 4 * MIB  # bytes read at a time by `follow`

# The commit log in etcd
ETCD_RANGE_COMMITS = 256  # commits read at a time
PAYLOAD_ORPHAN_MS = 3_600_000  # an upload that no commit references is deleted after this

# Object stores, and the commit log in one
STORE_OBJECT_BYTES_MAX = 8 * MIB  # of the objects that a bucket log writes; larger content takes several
BUCKET_READS_MAX = 32  # entries that a follower reads concurrently
BUCKET_STALE_S = 60.0  # a writer that did not read the end for this long may not write

# Read path
TAIL_CACHE_BYTES = 64 * MIB
READ_BYTES_DEFAULT = 1 * MIB
READ_BYTES_MAX = 64 * MIB
READ_WAIT_MS_MAX = 300_000
PART_CHUNK_BYTES = 4 * MIB  # rows of a part encoded as batches at a time

# Ledger
PRODUCER_TIME_STEP_MS = 60_000  # resolution of a producer's last activity in the ledger
CURSOR_METADATA_BYTES_MAX = 4096
TRANSACTION_TIMEOUT_MS_MAX = 900_000

# Tables
TABLE_COLUMNS_MAX = 1_000  # typed columns, in addition to the raw ones
TABLE_COLUMN_DEPTH_MAX = 16  # keys in a column's path
TYPED_REASON_CHARS_MAX = 512  # why a value does not fit its columns
TABLE_DECLARATION_CHARS_MAX = 256 * KIB  # of one topic's columns, as JSON
TABLE_ORPHAN_MS = 3600 * 1000  # unreferenced files of a table are deleted after this
TABLE_LOCATION_CHARS_MAX = 4_096
TABLES_PER_COMMIT_MAX = 1_000  # tables of one transaction
TABLE_COMMIT_TRIES = 8  # of a client's commit that loses races while its requirements hold

# The lake's ledger
TASK_NAME_CHARS_MAX = 500  # also of its holder's name
SWAP_FILES_MAX = 100_000  # parts and files of one swap
OBJECT_KEY_CHARS_MAX = 1_024

# Repack
CLOCK_STEP_MS_MAX = 60_000  # the server does not follow a larger jump ahead of the system clock
REPACK_AFTER_OBJECTS = 8  # sealed objects of the log that wait before the oldest are repacked …
REPACK_STREAMS_AT_ONCE = 1024  # streams checked before the event loop runs other work
REPACK_BYTES_PER_S = 64 * MIB  # default rate of reads and copies

# Tiering and the lake
HOT_RETAIN_BYTES = 8 * GIB  # sealed objects that stay on disk although an object store has them
LAKE_TASK_BYTES = 256 * MIB  # bytes of the log, or of data files, that one task reads
LAKE_TASKS_PER_PLAN_MAX = 1_024
# reading and decoding a small slice takes as long as this many bytes of a large one
LAKE_SLICE_BYTES = 1 * KIB
LAKE_ORPHAN_GRACE_MS = 3_600_000  # an unpublished file is deleted after this
LAKE_COLLECT_EVERY_S = 60.0
LAKE_DELETED_AT_ONCE = 1_000  # files deleted between two commits that record it

# Groups
GROUP_MEMBERS_MAX = 10_000
GROUP_SESSION_MS_MIN = 100  # Kafka's 6 s would be a long wait on a laptop
GROUP_SESSION_MS_MAX = 1_800_000
GROUP_REBALANCE_MS_MAX = 86_400_000
GROUP_INITIAL_DELAY_MS = 50  # how long an empty group waits for more members after the first
GROUP_GENERATION_MEMBERS_MAX = 1_000  # members of a larger group are not in the ledger
GROUP_GENERATION_CHARS_MAX = 1_024  # of a member's id
CONSUMER_GROUP_BYTES_MAX = 4 * MIB  # a larger group with broker-side assignment is not in the ledger
GROUP_CONSUMER_SESSION_MS = 45_000  # of members with broker-side assignment
GROUP_CONSUMER_HEARTBEAT_MS = 1_000  # their heartbeat interval, which dominates the time of a rebalance
OFFSETS_RETENTION_MS = 7 * 24 * 3600 * 1000

# All doors

# HTTP door
HTTP_BODY_BYTES_MAX = 64 * MIB  # of a request's body, compressed and decompressed
HTTP_CONTROL_BODY_BYTES_MAX = 4 * MIB  # of a request that carries no records
HTTP_LISTED_MAX = 10_000  # partitions, topics or writes that one request lists
HTTP_INGEST_BYTES_MAX = 256 * MIB  # bodies being received and written; above it, writes are throttled
HTTP_INFLIGHT_PER_KEY_MAX = 1_000
HTTP_WATCH_SESSIONS_MAX = 10_000
HTTP_STREAMS_MAX = 10_000
HTTP_STREAMS_PER_KEY_MAX = 1_000
HTTP_HEAD_BYTES_MAX = 64 * KIB  # request line and headers
HTTP_STALL_S = 30.0  # timeout of a body without new bytes, and of a response that the client does not read
HTTP_STALL_BYTES_MIN = 4 * KIB  # … fewer bytes than this in that time count as none
HTTP_IDLE_S = 75.0  # a connection without a request is closed after this
HTTP_WRITE_RECORDS_MAX = 10_000  # of one POST
HTTP_RECORD_BYTES_MAX = 1 * MIB  # data and meta of one record
HTTP_TAG_BYTES_MAX = 256
DIFF_RECORDS_DEFAULT = 256
DIFF_RECORDS_MAX = 1_000
DIFF_BYTES_DEFAULT = 1 * MIB
DIFF_BYTES_MAX = 8 * MIB
RENDERED_ON_LOOP_BYTES_MAX = 512 * KIB  # a larger page is rendered as JSON by a thread
DIFF_WAIT_MS_MAX = 30_000
TOPIC_PAGE_DEFAULT = 100
TOPIC_PAGE_MAX = 1_000
LARGE_READ_BYTES = 192 * MIB  # counted for a read that decodes a very large batch: there is one at a time

# Routers
ROUTERS_MAX = 10_000
ROUTER_HOPS_MAX = 8  # a copy with a higher hop count is dropped

# Pulsar door
PULSAR_CONNECTIONS_MAX = 10_000

# Text door
TEXT_FRAME_BYTES_MAX = 65_536
TEXT_CONNECTIONS_MAX = 10_000
TEXT_SEGMENT_ENTRIES = 1_000_000
TEXT_PIPELINE_REQUESTS_MAX = 4096  # received without a response on one connection; above it, reading stops
TEXT_PIPELINE_BYTES_MAX = 512 * KIB  # the same in bytes
TEXT_BATCH_RECORDS_MAX = 64  # pipelined PUTs in one batch: a GET decodes the batch up to its record
TEXT_TAKES_PER_RUN_MAX = 64  # pipelined GETs served by one commit
TEXT_WRITE_BUFFER_BYTES = 256 * KIB  # responses that a client has not read; above it, no request is served
TEXT_IDLE_S = 600.0  # an idle connection is closed after this
TEXT_STALL_S = 60.0  # a client that reads nothing for this long is disconnected
TEXT_LINGER_S = 1.0  # how long a rejected client may continue to send, so that it can read the error
TEXT_STATE_SEGMENTS_MAX = 10_000  # newest segments listed by one STATE
SHUTDOWN_DRAIN_S = 10.0

# Kafka door
KAFKA_REQUEST_BYTES_MAX = 100 * MIB  # one request, checked before anything is allocated
KAFKA_CONNECTIONS_MAX = 10_000
KAFKA_REQUESTS_IN_FLIGHT_MAX = 4096  # received without a response on one connection; above it, reading stops
KAFKA_BYTES_IN_FLIGHT_MAX = 32 * MIB  # the same in bytes
KAFKA_RECEIVE_BUFFER_BYTES = 256 * KIB  # shared by all connections
KAFKA_IDLE_S = 600.0  # an idle connection is closed after this
KAFKA_FETCH_BYTES_MAX = 64 * MIB  # record bytes of one Fetch response, whatever the client allows
KAFKA_CHANGES_AT_ONCE = 256  # topics of one admin request that are changed concurrently
KAFKA_DESCRIBED_CONFIGS_KEPT = 256  # cached responses for one config each

# Queues
CLAIM_JOBS_MAX = 1_000  # of one claim, and in one ack, nack or extend
SHARE_IN_FLIGHT_MAX = 10_000  # records of one partition that one group has acquired and not acknowledged
SHARE_IN_FLIGHT = 2_000  # its default
SHARE_DELIVERIES = 5  # deliveries of a record before the group gives up on it
LEASE_MS_MIN = 100
LEASE_MS_MAX = 86_400_000
NACK_DELAY_MS_MAX = 365 * 86_400_000

# Watches
WATCH_RECORDS_DEFAULT = 256  # in one frame; the maximum is that of a diff
WATCH_BYTES_DEFAULT = 256 * KIB
WATCH_SESSION_TTL_MS = 300_000  # a session without a connection is deleted after this
WATCH_HEARTBEAT_MS_DEFAULT = 15_000

# Brokers of one shared log
CLOCK_SKEW_MS_MAX = 500  # against the store's clock; above it, a broker proposes nothing that depends on time

# Security
SCRAM_ITERATIONS_MIN = 4_096
SCRAM_ITERATIONS_MAX = 16_384  # a login with a plain password costs this many hashes
SCRAM_SALT_BYTES_MAX = 256
ACCESS_RULES_PER_REQUEST_MAX = 1_000
OIDC_REFRESH_MIN_S = 10.0  # between two attempts that tokens with unknown keys cause
ACCESS_TOKEN_S = 3600  # life of a token that the server issues for an API key or a password
RATE_BURST_S = 10.0  # how many seconds of a rate may be used at once, unless the rate says
KEPT_NAME_CHARS_MAX = 512  # of names that clients choose: no cache keeps longer ones

# SQL
SQL_ROWS_MAX = 100_000
SQL_TIMEOUT_MS = 30_000  # of a query, unless its sender asks for less or more
SQL_TIMEOUT_MS_MAX = 300_000
SQL_MEMORY_BYTES = 1 * GIB  # that a worker may have for a query: DuckDB, Arrow and Python together
SQL_DECODED_BYTES_KEPT = 256 * MIB  # decoded records that a worker keeps for its next query

# Inspection
CHECK_PROBLEMS_MAX = 10_000  # listed by one check; more are only counted

# The schema registry
SCHEMA_REFERENCES_MAX = 1_000  # of one schema
SCHEMA_CHARS_MAX = 1_000_000  # of one schema with its references, metadata and rules
