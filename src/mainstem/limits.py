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
NAMESPACE_WORD_CHARS_MAX = 64  # a namespace is one or two words
NAMESPACE_PRINCIPALS_MAX = 1_000  # that one namespace admits
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
PARQUET_ROW_GROUP_BYTES = 64 * MIB  # rows in memory; what a reader decompresses at once and a writer buffers
PARQUET_ROW_GROUP_ROWS_MAX = 1_000_000
LAKE_READ_BYTES = 8 * MIB  # bytes of the log that a worker reads and decodes at a time
LAKE_READ_GAP_BYTES_MAX = 16 * KIB  # one read covers slices closer than this
REPORTS_OF_A_KIND_MAX = 64  # pipelines, or drivers of the lake, whose last report is kept
LAKE_DRIVER_SILENT_MS = 120_000  # a driver without a report for this long counts as gone
LAKE_TOPICS_MEASURED_MAX = 50  # topics whose lag is published as a metric
PIPELINE_OUTPUTS_MAX = 64  # in a report
PIPELINE_TOPICS_MAX = 256  # in a report
PIPELINE_POSITIONS_MAX = 4_096  # partitions in a report, for each output
PIPELINE_ERROR_CHARS_MAX = 2_000
LAKE_FILES_OPEN_MAX = 64  # files that a task has open; each day has its own
LAKE_PART_BYTES = 1 * GIB  # rows in memory for one part; a task with more makes several parts
LAKE_DAYS_PER_TASK_MAX = 2_000  # a task whose records span more days ends early

# Commit path
SATURATED_S = (
    0.1  # what is pending takes longer to write: the commit path is saturated, and appends wait by priority
)
SATURATED_BYTES_MIN = 4 * MIB  # bounds of what is pending then
SATURATED_BYTES_MAX = 16 * MIB  # two commits: one is written while the next one fills
SATURATION_SAMPLE_BYTES_MIN = 1 * MIB  # payload of commits that tell how fast the log is written
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
ETCD_UPLOAD_MS_MAX = 60_000  # an upload that is older at its commit is repeated: far less than the above

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
PRODUCER_BATCHES_KEPT = 5  # a duplicate of one of the last batches gets the original offset
PRODUCER_TIME_STEP_MS = 60_000  # resolution of a producer's last activity in the ledger
IDEMPOTENCY_KEYS_MAX = 1_000_000  # of all streams; beyond it, the oldest are dropped
CURSOR_METADATA_BYTES_MAX = 4096
TRANSACTION_TIMEOUT_MS_MAX = 900_000

# Tables
TABLE_COLUMNS_MAX = 1_000  # typed columns, in addition to the raw ones
TABLE_COLUMN_DEPTH_MAX = 16  # keys in a column's path
TYPED_ROWS_AT_ONCE = 4_096  # values decoded to typed columns in one block
TYPED_REASON_CHARS_MAX = 512  # why a value does not fit its columns
TABLE_DECLARATION_CHARS_MAX = 256 * KIB  # of one topic's columns, as JSON
TABLES_PER_CALL = 32  # whose commits a publisher sends together
TABLE_PARTS_PER_ROUND = 1_000  # new parts of one table that are published together
TABLE_SNAPSHOTS_KEPT = 100  # of a topic's table: a commit costs more with each
TABLE_SNAPSHOT_AGE_MS = 5 * 24 * 3600 * 1000  # older snapshots expire too, except the current one
TABLE_EXPIRY_EVERY_MS = 3600 * 1000  # how often an unchanged table is checked for old snapshots
TABLE_MANIFESTS_PER_TIER = 32  # this many manifests of similar size are merged into one
TABLE_SWEEP_EVERY_COMMITS = 50
TABLE_ORPHAN_MS = 3600 * 1000  # unreferenced files of a table are deleted after this
TABLE_LOCATION_CHARS_MAX = 4_096
TABLES_PER_COMMIT_MAX = 1_000  # tables of one transaction
TABLE_METADATA_KEPT = 16  # tables whose parsed metadata a broker caches
TABLE_COMMIT_TRIES = 8  # of a client's commit that loses races while its requirements hold

# The lake's ledger
TASKS_MAX = 100_000  # tasks of the lake under a lease
TASK_NAME_CHARS_MAX = 500  # also of its holder's name
SWAP_FILES_MAX = 100_000  # parts and files of one swap
OBJECT_KEY_CHARS_MAX = 1_024

# Repack
CLOCK_STEP_MS_MAX = 60_000  # the server does not follow a larger jump ahead of the system clock
LEDGER_AHEAD_MS_MAX = 1_000  # ledger time further ahead of the clock runs on by itself
DESCRIPTOR_RETRY_S = 0.05  # a sync that gets no file descriptor is tried again after this long …
DESCRIPTOR_RETRIES = 600  # … this many times
SPACE_PROBED_BYTES_MIN = 1 * MIB  # writes count as accepted again once the disk has room for this much
REPACK_AFTER_OBJECTS = 8  # sealed objects of the log that wait before the oldest are repacked …
REPACK_LEAST_BYTES = 16 * MIB  # … with at least this many bytes, because fewer are not worth a round, …
REPACK_SMALL_OBJECTS_MAX = 256  # … or this many objects
REPACK_STREAMS_AT_ONCE = 1024  # streams checked before the event loop runs other work
REPACK_BYTES_PER_S = 64 * MIB  # default rate of reads and copies
REPACK_GIVES_WAY_BYTES_PER_S = 32 * MIB  # above this write rate repacking pauses, unless much is waiting …
REPACK_GIVES_WAY_S = 0.2  # … for this long at a time

# Tiering and the lake
HOT_RETAIN_BYTES = 8 * GIB  # sealed objects that stay on disk although an object store has them
TIER_BYTES_PER_S = 64 * MIB  # upload rate, which leaves bandwidth for readers and writers
LAKE_TASK_BYTES = 256 * MIB  # bytes of the log, or of data files, that one task reads
LAKE_RANGES_PER_LEASE_MAX = 4  # consecutive ranges of one stream, for as many workers
LAKE_TASKS_PER_PLAN_MAX = 1_024
LAKE_PLAN_BYTES = 2 * GIB  # that the tasks of one plan read, with LAKE_SLICE_BYTES for each slice of the log
LAKE_BIN_BYTES = 32 * MIB  # that one Spark task reads, unless one range has more
LAKE_RANGE_BYTES = 512 * KIB  # a small range takes as long as this many bytes of a large one
LAKE_LOCAL_BYTES = 32 * MIB  # a pass that reads less needs no Spark job
LAKE_LOCAL_WORKERS = 2  # processes of a driver that run such passes …
LAKE_LOCAL_BIN_BYTES = 4 * MIB  # … and what each takes at a time
LAKE_PUBLISHED_PER_CALL = 256  # publications and files that a driver sends together
LAKE_SLICE_BYTES = (
    1 * KIB
)  # reading and decoding a small slice takes as long as this many bytes of a large one
LAKE_MERGE_PARTS_MIN = 8  # this many small neighbours are merged into one
LAKE_SMALL_PART_BYTES = 32 * MIB
LAKE_COMPACT_DIRTY_RATIO = 0.5  # share of a stream's part bytes that were never compacted
LAKE_GARBAGE_GRACE_MS = 600_000  # a replaced file stays this long for current readers
LAKE_ORPHAN_GRACE_MS = 3_600_000  # an unpublished file is deleted after this
LAKE_LEASE_SLACK_MS = 60_000  # how long after its deadline an abandoned lease is ended
LAKE_COLLECT_EVERY_S = 60.0
LAKE_RETRY_S = 5.0  # delay before a failed stream or table is retried, doubled with each failure …
LAKE_RETRY_MAX_S = 600.0  # … up to this
LAKE_FAILURES_REPORTED_MAX = 100  # topics in a driver's report …
LAKE_FAILURE_CHARS_MAX = 300  # … each with this much of its error
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
CONSUMER_GROUPS_BYTES_MAX = 32 * MIB  # of all such groups in the ledger
GROUP_CONSUMER_SESSION_MS = 45_000  # of members with broker-side assignment
GROUP_CONSUMER_HEARTBEAT_MS = 1_000  # their heartbeat interval, which dominates the time of a rebalance
OFFSETS_RETENTION_MS = 7 * 24 * 3600 * 1000

# All doors

# HTTP door
HTTP_BODY_BYTES_MAX = 64 * MIB  # of a request's body, compressed and decompressed
HTTP_INGEST_BYTES_MAX = 256 * MIB  # bodies being received and written; above it, writes are throttled
HTTP_PACKED_BYTES_MIN = 1 * KIB  # a smaller response is never compressed
HTTP_CONNECTIONS_MAX = 20_000
HTTP_INFLIGHT_PER_KEY_MAX = 1_000
HTTP_WATCH_SESSIONS_MAX = 10_000
HTTP_STREAMS_MAX = 10_000
HTTP_STREAMS_PER_KEY_MAX = 1_000
HTTP_HEAD_BYTES_MAX = 64 * KIB  # request line and headers
HTTP_HEAD_S = 10.0  # time for the request line and headers, from the first byte
HTTP_STALL_S = 30.0  # timeout of a body without new bytes, and of a response that the client does not read
HTTP_STALL_BYTES_MIN = 4 * KIB  # … fewer bytes than this in that time count as none
HTTP_IDLE_S = 75.0  # a connection without a request is closed after this
HTTP2_STREAMS_MAX = 256  # concurrent requests on one connection
HTTP2_STREAM_WINDOW_BYTES = 1 * MIB  # of a body, received and not yet consumed
HTTP2_CONNECTION_WINDOW_BYTES = 16 * MIB  # the same for all bodies of a connection
HTTP2_RESETS_MAX = 1_000  # requests that a connection may start and cancel
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
ROUTER_COPIED_BYTES_MAX = 1 * MIB  # read for one commit, compressed …
ROUTER_COPIES_BYTES_MAX = 16 * MIB  # … and decompressed

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
KAFKA_MESSAGE_BYTES_MAX = 8 * MIB  # a request without records: decoded it takes about twenty times its bytes
KAFKA_CONTROL_REQUEST_BYTES_MAX = 8 * MIB  # the same for all but Produce: objects take more memory than bytes
KAFKA_CONNECTIONS_MAX = 10_000
KAFKA_REQUESTS_IN_FLIGHT_MAX = 4096  # received without a response on one connection; above it, reading stops
KAFKA_BYTES_IN_FLIGHT_MAX = 32 * MIB  # the same in bytes
KAFKA_BYTES_IN_FLIGHT_TOTAL_MAX = 256 * MIB  # the same for all connections
KAFKA_RECEIVE_BUFFER_BYTES = 256 * KIB  # shared by all connections
KAFKA_BULK_BYTES = 32 * KIB  # a client that sends this much at once, or in a request, gets its own memory …
KAFKA_LANDING_BLOCK_BYTES = 4 * MIB  # … a block that several requests fill …
KAFKA_LANDING_FRAME_BYTES_MAX = 1 * MIB  # … but not larger ones: too much of its end would stay unused
KAFKA_LANDING_FRAMES_MAX = 64  # incomplete ones: each may hold a block
KAFKA_LANDING_BLOCKS_MAX = 32  # free blocks that are reused
KAFKA_WRITE_BUFFER_BYTES = 1 * MIB  # responses that a client has not read; above it, reading stops
KAFKA_IDLE_S = 600.0  # an idle connection is closed after this
KAFKA_SESSION_PARTITIONS_MAX = (
    1_000_000  # of all fetch sessions; beyond, clients name their partitions each time
)
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
CLAIM_JITTER_MS_MAX = 5_000

# Watches
WATCH_RECORDS_DEFAULT = 256  # in one frame; the maximum is that of a diff
WATCH_BYTES_DEFAULT = 256 * KIB
WATCH_SESSION_TTL_MS = 300_000  # a session without a connection is deleted after this
WATCH_HEARTBEAT_MS_DEFAULT = 15_000

# Brokers of one shared log
CLOCK_SKEW_MS_MAX = 500  # against the store's clock; above it, a broker proposes nothing that depends on time

# Security
AUDIT_QUEUE_MAX = 10_000  # records that wait to be written; more are dropped, and counted
AUDIT_RECORDS_PER_BATCH_MAX = 500
AUDIT_WINDOW_S = 5.0  # within which denials of the same operation become one record
AUDIT_DENIALS_COUNTED_MAX = 10_000  # different ones, within a window
AUDIT_NAME_CHARS_MAX = 512  # of the resource, in a record
AUDIT_RETENTION_MS = 30 * 24 * 3_600_000
AUDIT_RETENTION_BYTES = 256 * MIB
AUDIT_RETRY_S = 1.0  # after records could not be written
AUDIT_CLOSE_S = 2.0  # to write what is left
SCRAM_ITERATIONS_MIN = 4_096
SCRAM_ITERATIONS_MAX = 16_384  # a login with a plain password costs this many hashes
SCRAM_SALT_BYTES_MAX = 256
OIDC_REFRESH_S = 3600.0  # keys of an issuer are fetched again after this long
OIDC_REFRESH_MIN_S = 10.0  # between two attempts that tokens with unknown keys cause
OIDC_BACKOFF_MAX_S = 300.0
OIDC_FETCH_S = 10.0
OIDC_DOCUMENT_BYTES_MAX = 1 * MIB
ACCESS_TOKEN_S = 3600  # life of a token that the server issues for an API key or a password
API_KEYS_MAX = 100_000  # stored; those of the settings do not count
API_KEY_ID_CHARS_MAX = 64
API_KEY_RULES_MAX = 100  # prefixes and rules of one key
AUTHENTICATED_SECRETS_KEPT = 10_000  # whose principal is known without another hash
RATES_MAX = 100_000  # users, client ids, groups and namespaces with a rate
RATE_MAX = float(1 << 63)  # what clients send for "unlimited"
RATE_BURST_S = 10.0  # how many seconds of a rate may be used at once, unless the rate says
RATE_BURST_S_MAX = 86_400.0
THROTTLE_MS_MAX = 20_000  # of one throttle; less than the request timeout of clients
RATE_BUCKETS_KEPT = 100_000  # of clients, groups and namespaces seen recently
RATES_PUBLISHED_MAX = 1_000  # entities that metrics name
HTTP_THROTTLE_WAIT_MS_MAX = (
    5_000  # a request over its rate waits this long; what would wait longer is rejected
)
GROUP_NAMES_KEPT = 100_000  # clients whose consumer group is known
GROUP_NAMED_S = 300.0  # how long a client is taken for a reader of the group that it named
ACCESS_DECISIONS_KEPT = 100_000  # cached decisions of the access rules, until a rule changes
KAFKA_UNAUTHENTICATED_REQUEST_BYTES_MAX = 64 * KIB  # before a client has authenticated
KAFKA_TOKEN_BYTES_MAX = 16 * KIB  # of an OAuth bearer
KAFKA_TOKEN_KEYS_MAX = 100  # in a JWKS: a token without a key id is checked against each key of its algorithm
KAFKA_TOKEN_TIME_S_MAX = 253_402_300_799  # the end of the year 9999; clients that send milliseconds exceed it
KAFKA_TOKEN_CHECK_THREADS = 1  # so that a flood of tokens uses at most one core
KAFKA_TOKEN_CHECKS_WAITING_MAX = 1_024  # tokens whose signature is being checked or waits for the check
KAFKA_TOKENS_REMEMBERED = 10_000  # tokens whose signature was checked

# SQL
SQL_ROWS_DEFAULT = 1_000  # of a result, unless the query's sender asks for another number
SQL_ROWS_MAX = 100_000
SQL_RESULT_BYTES_MAX = 64 * MIB  # of the result, as Arrow has it
SQL_TIMEOUT_MS = 30_000  # of a query, unless its sender asks for less or more
SQL_TIMEOUT_MS_MAX = 300_000
SQL_QUERY_CHARS_MAX = 100_000
SQL_TABLES_MAX = 64  # topics that one query reads
SQL_MEMORY_BYTES = 1 * GIB  # that DuckDB may use for one query
SQL_THREADS = 2
SQL_WORKERS = 2  # queries that run at once
SQL_QUERIES_WAITING_MAX = 32
SQL_WORKER_IDLE_S = 600.0  # how long a worker process stays without a query
SQL_LOG_BYTES_MAX = 1 * GIB  # of a topic's records that are in no Parquet file yet, which a query decodes
SQL_DECODED_BYTES_KEPT = 256 * MIB  # decoded records that a worker keeps for its next query

# Inspection
CHECK_PROBLEMS_MAX = 10_000  # listed by one check; more are only counted

# The schema registry
SCHEMA_CHARS_MAX = 1_000_000  # of one schema with its references, metadata and rules
SCHEMAS_CHARS_MAX = 512_000_000  # of all schemas together: they are held in memory
SCHEMA_SUBJECTS_MAX = 100_000
SCHEMA_VERSIONS_MAX = 1_000  # of one subject, softly deleted ones included
SCHEMA_REFERENCES_MAX = 1_000  # that one schema needs, those of its references included
SCHEMAS_PARSED_KEPT = 1_000

BUCKETS_MAX = 1_000  # of users, at the S3 door
BUCKET_OBJECTS_MAX = 1_000_000  # keys of all buckets: each takes about 1 KB of memory
BUCKET_KEY_BYTES_MAX = 1024
OBJECT_VERSIONS_MAX = 1_000  # of one key
UPLOADS_MAX = 10_000  # multipart uploads under way
