"""Every limit, with the unit last in its name."""

from __future__ import annotations

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

# Names
NAME_CHARS_MAX = 255
PARTITIONS_PER_TOPIC_MAX = 10_000
TOPICS_MAX = 100_000
PARTITIONS_MAX = 200_000  # of all topics
STREAMS_MAX = (1 << 32) - 1  # stream numbers ever handed out; a slice row holds 32 bits
TOPIC_SETTING_CHARS_MAX = 64 * KIB  # one setting's value, as text
OFFSET_MAX = 1 << 62  # of an offset or a byte count, so that sums stay within 64 bits

# Records
RECORD_BYTES_MAX = 64 * MIB  # one record, decoded
BATCH_BYTES_MAX = 64 * MIB  # one record batch as stored; a topic's own limit is usually far lower
BATCH_RECORDS_MAX = 1 << 20  # records in one batch
CRC_JOINED_BYTES_MIN = 256 * KIB  # for a smaller slice, computing the CRC is faster than combining it
BATCH_DECODED_BYTES_MAX = 256 * MIB  # decompressed size of one batch
DECODED_INLINE_BYTES_MAX = 4 * MIB  # a compressed batch up to this size is decoded on the event loop
HEADERS_PER_RECORD_MAX = 10_000
HEADERS_PER_DECODE_MAX = 8 * MIB  # headers decoded by one call, which bounds its memory
DECODE_CALL_BYTES = 4 * MIB  # record bytes decoded by one kernel call; a larger batch goes alone
DECODE_CALL_RECORDS = 64 * KIB  # records decoded by one kernel call; a larger batch goes alone
DECODE_CALL_BATCHES = 16 * KIB  # batches decoded by one kernel call
INTERPRETED_RECORDS_MAX = 48  # up to here plain Python is faster than a call of a compiled kernel
RECOMPRESSED_INLINE_BYTES_MAX = 4 * KIB  # a slice up to this size is recompressed on the event loop
JSON_NESTING_MAX = 512  # levels of arrays and objects in a value rendered as JSON
ZSTD_WINDOW_BYTES_MAX = 128 * MIB  # memory that a zstd frame may require

# Records in Parquet
PARQUET_ROW_GROUP_BYTES = 64 * MIB  # rows in memory; what a reader decompresses at once and a writer buffers
PARQUET_ROW_GROUP_ROWS_MAX = 1_000_000
PARQUET_PAGE_BYTES = 1 * MIB
PARQUET_READ_ROWS = 64 * KIB  # rows decompressed at a time by a reader
LAKE_READ_BYTES = 8 * MIB  # bytes of the log that a worker reads and decodes at a time
LAKE_READ_GAP_BYTES_MAX = 16 * KIB  # one read covers slices closer than this
REPORTS_OF_A_KIND_MAX = 64  # pipelines, or drivers of the lake, whose last report is kept
REPORT_BYTES_MAX = 256 * KIB
LAKE_DRIVER_SILENT_MS = 120_000  # a driver without a report for this long counts as gone
LAKE_TOPICS_MEASURED_MAX = 50  # topics whose lag is published as a metric
GROUPS_MEASURED_MAX = 200  # consumer groups whose members and lag are published as metrics
GROUP_CURSORS_MEASURED_MAX = 10_000  # cursors of these groups that a scrape reads
PIPELINE_SILENT_MS = 60_000  # a running pipeline without a report for this long is called silent
PIPELINE_KEPT_MS = 86_400_000  # after this, its last report is deleted
PIPELINE_OUTPUTS_MAX = 64  # in a report
PIPELINE_TOPICS_MAX = 256  # in a report
PIPELINE_POSITIONS_MAX = 4_096  # partitions in a report, for each output
PIPELINE_ERROR_CHARS_MAX = 2_000
LAKE_FILES_OPEN_MAX = 64  # files that a task has open; each day has its own
LAKE_PART_BYTES = 1 * GIB  # rows in memory for one part; a task with more makes several parts
LAKE_DAYS_PER_TASK_MAX = 2_000  # a task whose records span more days ends early
REBATCHED_BYTES = 1 * MIB  # approximate size of a batch encoded from rows, unless one record is larger

# Commit path
GROUP_COMMIT_BYTES_MAX = 8 * MIB  # payload of one commit
GROUP_COMMIT_COMMANDS_MAX = 16_384  # commands and slices in one commit
PENDING_BYTES_MAX = 64 * MIB  # proposed but not yet written; above it, callers wait
ENTRY_BYTES_MAX = 64 * MIB  # one encoded entry
CEILING_STEP_RECORDS = 64 * KIB  # how far a relaxed stream may advance past its synced ceiling
DIGEST_EVERY_COMMITS = 4096

# Local storage
SEGMENT_BYTES = 128 * MIB  # a WAL file is sealed above this size
CHECKPOINT_EVERY_BYTES = 512 * MIB  # WAL written between two checkpoints, which bounds replay
CHECKPOINT_HURRIED_S = (
    300.0  # checkpoint interval of a shared log whose objects wait only for a checkpoint to be deleted
)
REPLAYED_COMMIT_BYTES = 32 * KIB  # bytes that a commit of a shared log counts as: each is a request
CHECKPOINTS_KEPT = 2
DIVERGENCES_SHOWN = 100  # differences listed when digests disagree
IOVECS_MAX = 1024  # buffers in one pwritev, the kernel's IOV_MAX
FRAME_JOINED_BYTES_MAX = 256 * KIB  # a smaller commit is joined into one buffer: cheaper than many iovecs
SLICE_JOINED_BYTES_MAX = 4 * KIB  # slices of this average size are joined in any number
SEGMENT_ZEROING_STEP_BYTES = 1 * MIB  # the next WAL file is zeroed in steps that an append can wait for
SHORTCUT_BYTES_MAX = 32 * KIB  # commits up to this size may be written on the event loop
SHORTCUT_SLOW_S = 0.001  # a slower write there disables the shortcut …
SHORTCUT_CLOSED_S = 1.0  # … for this long
SEGMENT_ZEROING_PAUSE_S = 0.01  # between two steps
FULL_DISK_RETRY_S = 0.5  # retry interval of a start on a full disk
BACKUP_CHUNK_BYTES = 32 * MIB  # chunk size of files in a backup
FOLLOW_CHUNK_COMMITS = 4096  # commits returned at a time by `follow`
FOLLOW_WINDOW_BYTES = 4 * MIB  # bytes read at a time by `follow`
SEGMENT_FILES_OPEN_MAX = 128  # read-only WAL files kept open

# The commit log in etcd
ETCD_ENTRY_BYTES_MAX = 64 * KIB  # a larger entry is stored in the object store, after its payload
ETCD_CALL_S = 5.0  # one attempt of a call
ETCD_RETRY_S = 15.0  # all attempts of a call: an election takes a second or two
ETCD_WATCH_PAUSE_S = 0.1  # before a lost watch is restarted
ETCD_WATCH_IDLE_S = 5.0  # a watch without events for this long is restarted
ETCD_RANGE_COMMITS = 256  # commits read at a time
ETCD_RANGE_BYTES_MAX = 64 * MIB  # one response
ETCD_OBJECT_COMMITS_MAX = 16 * KIB  # commits in one object, which bounds the memory for an open one
ETCD_RETENTION_MS = 3_600_000  # of commits after their object is sealed: longer than any retry or lag
ETCD_TRUNCATED_AT_ONCE = 10_000  # commits deleted by one call
ETCD_DIRECTORIES_IN_MEMORY = 64  # sealed objects whose list of commits is cached
PAYLOAD_ORPHAN_MS = 3_600_000  # an upload that no commit references is deleted after this
ETCD_UPLOAD_MS_MAX = 60_000  # an upload that is older at its commit is repeated: far less than the above

# Object stores, and the commit log in one
STORE_ATTEMPTS_MAX = 6  # of one request, including the first
STORE_TRYING_S = 60.0  # total time for one request, with attempts and pauses
STORE_REQUEST_S = 20.0  # one attempt, which bounds how long a stalled put can live
STORE_CONNECT_S = 5.0
STORE_BACKOFF_S = 0.1  # before the second attempt; doubles from there, less a random part
STORE_BACKOFF_MAX_S = 5.0
STORE_LEAVING_S = 1.0  # at exit, for client threads with a response
STORE_REQUESTS_MAX = 64  # concurrent, of one event loop
STORE_GAP_BYTES_MAX = 256 * KIB  # one request covers ranges closer than this
STORE_OBJECT_BYTES_MAX = 8 * MIB  # of the objects that a bucket log writes; larger content takes several
BLOCK_BYTES = 1 * MIB  # of the block cache
BLOCK_CACHE_MEMORY_BYTES = 64 * MIB
BLOCK_CACHE_DISK_BYTES = 4 * GIB
BUCKET_INLINE_BYTES_MAX = 128 * KIB  # a larger payload has its own objects, put before the entry
BUCKET_REFERENCE_BYTES_MIN = 1 * MIB  # a payload of at least this size stays there when its object is sealed
BUCKET_REFERENCES_IN_MEMORY = 256  # sealed objects whose payload locations are cached
BUCKET_OBJECT_BYTES = 64 * MIB  # payload after which a bucket log's object is sealed …
BUCKET_OBJECT_COMMITS_MAX = 4096  # … or this many commits, which bounds a search for one
BUCKET_READS_MAX = 32  # entries that a follower reads concurrently
BUCKET_RECENT_BYTES = 16 * MIB  # payload of the newest entries, cached for readers
BUCKET_POLL_S = 0.025  # shortest poll interval of a follower at the end …
BUCKET_POLL_MAX_S = 0.25  # … and the longest, while there is nothing new
BUCKET_PUT_S = 5.0  # an entry without a response for this long, and not in the bucket, is put again
BUCKET_STALE_S = 60.0  # a writer that did not read the end for this long may not write
BUCKET_ENTRIES_KEPT_MS = 3_600_000  # by the store's clock; far longer than a stalled put can last

# Read path
TAIL_CACHE_BYTES = 64 * MIB
HEAP_KEPT_BYTES = 64 * MIB  # freed memory that the server keeps for the next requests
HEAP_BLOCK_BYTES_MAX = 16 * MIB  # larger blocks are mapped from the kernel and returned to it
READ_BYTES_DEFAULT = 1 * MIB
READ_BYTES_MAX = 64 * MIB
READ_WAIT_MS_MAX = 300_000
PART_CHUNK_BYTES = 4 * MIB  # rows of a part encoded as batches at a time
PART_CHUNKS_AHEAD = 2  # read-ahead for a reader that reads a part in order
PART_CACHE_BYTES = 64 * MIB  # cache of batches encoded from rows
PART_CURSORS_BYTES = 192 * MIB  # row groups of files that readers are in the middle of
PART_CURSORS_MAX = 64
PART_THREADS = 2
PART_READ_S = 60.0  # one read of the object store
INDEX_MEMORY_BYTES = 16 * MIB  # cache of the indexes of objects, and of repacked files …
INDEX_MEMORY_OBJECTS_MIN = 3  # … but at least this many of any size: a lookup may need two neighbours …
INDEX_MEMORY_FILES_MIN = 16  # … or bisect thousands of repacked rounds
OPEN_EXTENTS_MAX = 512 * KIB  # slices in one object, which bounds the memory for an open one
EPHEMERAL_STREAM_BYTES_MAX = 16 * MIB  # memory of one ephemeral stream; the oldest records are dropped

# Ledger
PRODUCER_BATCHES_KEPT = 5  # a duplicate of one of the last batches gets the original offset
PRODUCERS_MAX = 1_000_000
PRODUCER_IDLE_MS = 7 * 24 * 3600 * 1000
PRODUCER_TIME_STEP_MS = 60_000  # resolution of a producer's last activity in the ledger
IDEMPOTENCY_KEYS_MAX = 1_000_000  # of all streams; beyond it, the oldest are dropped
COMMIT_IDS_KEPT_PER_BROKER = 1024
CURSOR_METADATA_BYTES_MAX = 4096
TRANSACTIONAL_IDS_MAX = 100_000
TRANSACTIONAL_ID_CHARS_MAX = 1024
TRANSACTIONAL_ID_IDLE_MS = 7 * 24 * 3600 * 1000  # an id unused for this long is deleted
TRANSACTION_TIMEOUT_MS_MAX = 900_000
TRANSACTION_STREAMS_MAX = 100_000  # partitions one transaction may write to
TRANSACTION_GROUPS_MAX = 1_000  # groups whose offsets one transaction may commit
TRANSACTION_OFFSETS_MAX = 100_000
CURSORS_MAX = 4_000_000  # (group, stream) pairs
SINKS_MAX = 100_000  # queries that write batches, each with its last batch number
SINK_ATTEMPTS_MAX = 100_000  # attempts at tasks of one batch before it is committed
SINK_NAME_CHARS_MAX = 200
SINK_IDLE_MS = 90 * 24 * 3600 * 1000  # a query without writes for this long is deleted …
SINK_ONCE_IDLE_MS = 3600 * 1000  # … one with a single batch much sooner: only a lost response is retried
SINKS_CHECK_EVERY_S = 60.0

# Tables
NAMESPACES_MAX = 10_000
NAMESPACE_CHARS_MAX = 2_048  # all levels together
TABLES_MAX = 100_000
NAMESPACE_PROPERTIES_CHARS_MAX = 64 * KIB  # of one namespace, names and values
TABLE_COLUMNS_MAX = 1_000  # typed columns, in addition to the raw ones
TABLE_COLUMN_DEPTH_MAX = 16  # keys in a column's path
TYPED_ROWS_AT_ONCE = 4_096  # values decoded to typed columns in one block
TYPED_REASON_CHARS_MAX = 512  # why a value does not fit its columns
COMPACTION_KEYS_AT_ONCE = 1_000_000  # rows collected before they are reduced to the last one a key
TABLE_DECLARATION_CHARS_MAX = 256 * KIB  # of one topic's columns, as JSON
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
TABLE_SNAPSHOTS_HELD_MAX = 10_000  # of a topic's table; its publisher keeps far fewer

# The lake's ledger
TASKS_MAX = 100_000  # tasks of the lake under a lease
TASK_NAME_CHARS_MAX = 500  # also of its holder's name
SWAP_FILES_MAX = 100_000  # parts and files of one swap
OBJECT_KEY_CHARS_MAX = 1_024

# Repack
REPACK_AFTER_OBJECTS = 8  # sealed objects of the log that wait before the oldest are repacked …
REPACK_LEAST_BYTES = 16 * MIB  # … with at least this many bytes, because fewer are not worth a round, …
REPACK_SMALL_OBJECTS_MAX = 256  # … or this many objects
REPACK_ROUND_BYTES = 128 * MIB  # bytes of the log's objects in one round, but at least one object
REPACK_MERGED_ROUNDS = 16  # this many neighbouring rounds are merged into one …
REPACK_MERGED_BYTES_MAX = 8 * GIB  # … unless it would be larger than this
REPACK_LEVELS_MAX = 2  # how often bytes are copied to make them contiguous
REPACK_DEAD_RATIO = 0.5  # share of deleted bytes at which a round is rewritten
REPACK_SCAN_FILES = 64  # files checked at a time to find such a round …
REPACK_SCAN_EVERY_S = 60.0  # … at most this often
REPACK_STREAMS_AT_ONCE = 1024  # streams checked before the event loop runs other work
REPACK_READ_BYTES = 4 * MIB  # copied at a time
REPACK_READ_GAP_BYTES = 64 * KIB  # one read covers slices closer than this
REPACK_BYTES_PER_S = 64 * MIB  # default rate of reads and copies
REPACK_GIVES_WAY_BYTES_PER_S = 32 * MIB  # above this write rate repacking pauses, unless much is waiting …
REPACK_GIVES_WAY_S = 0.2  # … for this long at a time
REPACK_EVERY_S = 5.0  # interval of checks for work
REPACK_GRACE_S = 60.0  # replaced files stay this long for current readers
REPACK_ORPHANS_EVERY_S = 3_600.0
REPACK_ORPHAN_GRACE_MS = 3_600_000  # an unpublished file of another broker is deleted after this
REPACK_DEBT_OBJECTS_MAX = 64  # sealed objects that wait; above it, writes are slowed down
REPACK_HELD_BACK_S = 0.002  # delay of a commit group for each object above it …
REPACK_HELD_BACK_S_MAX = 0.1  # … up to this
REPACKED_FILE_BYTES = 32 * MIB  # of payload, built in memory
REPACKED_FILE_EXTENTS_MAX = 64 * KIB  # bounds its index
REPACKED_FILES_PER_ROUND_MAX = 10_000
REPACKED_READS_AHEAD = 4  # concurrent reads for a reader that reads a stream in order …
REPACKED_AHEAD_BYTES_MIN = 64 * KIB  # … of at least this size …
REPACKED_AHEAD_BYTES_MAX = 4 * MIB  # … and at most this; also the total after which no further read starts
REPACKED_READERS_MAX = 32  # readers that get a read-ahead or are tracked for one
REPACKED_EXTENT_BYTES = 32 * KIB  # consecutive small slices are joined up to this size

# The lake
HOT_RETAIN_BYTES = 8 * GIB  # sealed objects that stay on disk although an object store has them
TIER_EVERY_S = 10.0  # interval of checks for objects to copy to the store or to delete, unless woken
TIER_PAUSE_MAX_S = 300.0  # between two attempts while the store does not respond
TIER_PUTS_MAX = 4  # concurrent uploads of parts of an object
TIER_BYTES_PER_S = 64 * MIB  # upload rate, which leaves bandwidth for readers and writers
TIER_GRACE_MS = 600_000  # an unneeded copy stays this long for readers that have its location
STORE_READS_MAX = 1_024  # reads that wait for an object store; more are rejected as retriable
STORE_READ_THREADS = 16  # for reads of an object store; reads of the disk have other threads
TIERS_MAX = 1_000_000  # objects of a local log in an object store
LAKE_TASK_BYTES = 256 * MIB  # bytes of the log, or of data files, that one task reads
LAKE_TASK_EXTENTS_MAX = 200_000  # slices that one task reads, which bounds the plan that lists them
LAKE_TASK_PIECES_MAX = 20_000  # the same where each slice may be an object of the store that the plan names
LAKE_TASK_RUNS_MAX = 20_000  # alias ranges that one task reads, each stored in another stream
LAKE_RANGES_PER_LEASE_MAX = 4  # consecutive ranges of one stream, for as many workers
LAKE_TASKS_PER_PLAN_MAX = 256
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
GROUPS_MAX = 100_000  # with members, now or recently; committed offsets alone do not count
GROUP_MEMBERS_MAX = 10_000
GROUP_PROTOCOLS_PER_MEMBER_MAX = 64
GROUP_MEMBER_BYTES_MAX = 1 * MIB  # of a member's metadata, and of its assignment
GROUP_TOPICS_PER_MEMBER_MAX = 10_000  # names in one subscription
GROUP_REGEX_CHARS_MAX = 1_024
GROUP_SESSION_MS_MIN = 100  # Kafka's 6 s would be a long wait on a laptop
GROUP_SESSION_MS_MAX = 1_800_000
GROUP_REBALANCE_MS_MAX = 86_400_000
GROUP_INITIAL_DELAY_MS = 50  # how long an empty group waits for more members after the first
GROUP_EXPECTED_MS = 4_000  # how long a group waits after a start for its earlier members, which ask every 3 s
GROUP_GENERATIONS_MAX = 10_000  # groups whose last members are in the ledger
GROUP_GENERATION_MEMBERS_MAX = 1_000  # members of a larger group are not in the ledger
GROUP_GENERATION_CHARS_MAX = 1_024  # of a member's id
GROUP_GENERATION_MAX = 2**31 - 1
CONSUMER_GROUP_BYTES_MAX = 4 * MIB  # a larger group with broker-side assignment is not in the ledger
CONSUMER_GROUPS_BYTES_MAX = 32 * MIB  # of all such groups in the ledger
GROUP_CONSUMER_SESSION_MS = 45_000  # of members with broker-side assignment
GROUP_CONSUMER_HEARTBEAT_MS = 1_000  # their heartbeat interval, which dominates the time of a rebalance
OFFSETS_RETENTION_MS = 7 * 24 * 3600 * 1000
OFFSETS_EXPIRY_EVERY_MS = 600_000
OFFSETS_EXPIRY_GRACE_MS = 600_000  # after a start, so that members rejoin before their group counts as empty

# All doors
DESCRIPTORS_MAX = 1 << 20  # open files that a server asks the system for
DESCRIPTORS_RESERVED = 384  # of them for files of the log, so that connections never use up all
CONNECTIONS_PER_FREE_SEAT = 8  # a principal may have this many for each one that is left
CONNECTION_UNUSED_S_MIN = 0.1  # a connection unused for this long may be closed to make room for another
CONNECTIONS_EXAMINED_MAX = 256  # to find such a connection
PRINCIPALS_KEPT = 10_000  # whose rates are known
RECEIVED_BYTES_MAX = 256 * MIB  # of unfinished requests, and of requests behind others of their connection
DECODES_WAITING_MAX = 256  # compressed bodies and large batches of one principal that wait to be decoded
REQUESTS_WAITING_MAX = 16 * KIB  # parsed, behind others of their connection
RESPONSE_BYTES_MAX = 256 * MIB  # of large responses that clients have not read
STEPS_AHEAD_PER_TURN = 8  # of all clients that send requests ahead …
STEPS_AHEAD_PAUSE_S = 0.001  # … after which others are served for at least this long
CONTROL_FRAMES_PER_S = 100.0  # frames without data on one connection …
CONTROL_FRAMES_BURST = 500.0  # … and at once
CONTROL_FRAMES_FREE = 32  # of one connection, which do not count for its principal
CONTROL_FRAMES_PER_PRINCIPAL_S = 1_000.0
CONTROL_FRAMES_PER_PRINCIPAL_BURST = 5_000.0

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
HTTP_PIPELINE_REQUESTS_MAX = 32  # received behind another on one connection; above it, reading stops
HTTP_HEAD_STEP_BYTES = 4 * KIB  # parsed at a time, which bounds the requests that one step finds …
HTTP_BODY_STEP_BYTES = 64 * KIB  # … and the same inside a body
HTTP2_FRAMES_PER_TURN = 16  # processed before the event loop serves others
HTTP2_STREAMS_MAX = 256  # concurrent requests on one connection
HTTP2_STREAM_WINDOW_BYTES = 1 * MIB  # of a body, received and not yet consumed
HTTP2_CONNECTION_WINDOW_BYTES = 16 * MIB  # the same for all bodies of a connection
HTTP2_RESETS_MAX = 1_000  # requests that a connection may start and cancel
HTTP_WRITE_RECORDS_MAX = 10_000  # of one POST
HTTP_RECORD_BYTES_MAX = 1 * MIB  # data and meta of one record
HTTP_TAG_BYTES_MAX = 256
HTTP_NODE_BYTES_MAX = 128
HTTP_META_BYTES_MAX = 16 * KIB
HTTP_META_KEYS_MAX = 64
HTTP_IDEMPOTENCY_KEY_BYTES_MAX = 256
DELETE_RECORDS_PER_COMMAND = 100_000  # a larger delete takes several commands
DELETE_SIZING_BYTES_MAX = 64 * MIB  # read to compute the deleted bytes; above it, the average is used
DIFF_RECORDS_DEFAULT = 256
DIFF_RECORDS_MAX = 1_000
DIFF_BYTES_DEFAULT = 1 * MIB
DIFF_BYTES_MAX = 8 * MIB
RENDERED_ON_LOOP_BYTES_MAX = 512 * KIB  # a larger page is rendered as JSON by a thread
DIFF_WAIT_MS_MAX = 30_000
TOPIC_PAGE_DEFAULT = 100
TOPIC_PAGE_MAX = 1_000

# Pages of the console and the inspection API
MESSAGES_SHOWN_DEFAULT = 50
MESSAGES_SHOWN_MAX = 500
MESSAGES_SCANNED_MAX = 20_000  # records scanned for one page
MESSAGES_READ_BYTES_MAX = 16 * MIB  # read for one page
MESSAGES_CHUNK_BYTES = 512 * KIB
MESSAGE_VALUE_BYTES_DEFAULT = 16 * KIB  # of a value, unless the request asks for all of it
LEASES_SHOWN = 500
STORAGE_OBJECTS_SHOWN = 200
STORAGE_REPACKED_SHOWN = 50  # repacked files; each needs a read of its index
STORAGE_PARTS_SHOWN = 500
STORAGE_RANGES_SHOWN = 50
STORAGE_OPEN_EXTENTS_MAX = 100_000  # of the open file; above it, they are not sorted for display
MESSAGES_SEARCH_STEP_BYTES = 1 * MIB  # of a value, searched at a time
LARGE_READ_BYTES = 192 * MIB  # counted for a read that decodes a very large batch: there is one at a time
ROUTERS_MAX = 10_000
ROUTER_HOPS_MAX = 8  # a copy with a higher hop count is dropped
ROUTER_COPIED_RECORDS_MAX = 10_000  # appended by one commit
ROUTER_COPIED_BYTES_MAX = 1 * MIB  # read for one commit, compressed …
ROUTER_COPIES_BYTES_MAX = 16 * MIB  # … and decompressed
ROUTER_COPIED_INLINE_BYTES = 4 * KIB  # copies up to this size are made on the event loop
ROUTER_PAUSE_S_MIN = 0.002  # before a round, so that it forwards records that arrive together …
ROUTER_PAUSE_S_PER_LEG = 50e-6  # … and longer with more work, so that writers get most of the time
ROUTER_RETRY_S = 1.0  # before a full destination is tried again
PASSED_LOSSES_MAX = 128  # lost ranges of a stream that deletes passed over; beyond it, the oldest are merged

# Text door
TEXT_FRAME_BYTES_MAX = 65_536
TEXT_CONNECTIONS_MAX = 10_000
TEXT_SEGMENT_ENTRIES = 1_000_000
TEXT_PIPELINE_REQUESTS_MAX = 4096  # received without a response on one connection; above it, reading stops
TEXT_PIPELINE_BYTES_MAX = 512 * KIB  # the same in bytes
TEXT_BATCH_RECORDS_MAX = 64  # pipelined PUTs in one batch: a GET decodes the batch up to its record
TEXT_TAKES_PER_RUN_MAX = 64  # pipelined GETs served by one commit
TEXT_WRITE_BUFFER_BYTES = 256 * KIB  # responses that a client has not read; above it, no request is served
TEXT_IDLE_S = 600.0  # an idle connection is closed after this …
TEXT_FRAME_S = 30.0  # … and one with an incomplete request after this
TEXT_STALL_S = 60.0  # a client that reads nothing for this long is disconnected
TEXT_LINGER_S = 1.0  # how long a rejected client may continue to send, so that it can read the error
TEXT_STATE_SEGMENTS_MAX = 10_000  # newest segments listed by one STATE
SHUTDOWN_DRAIN_S = 10.0

# Kafka door
KAFKA_REQUEST_BYTES_MAX = 100 * MIB  # one request, checked before anything is allocated
KAFKA_MESSAGE_BYTES_MAX = 8 * MIB  # a request without records: decoded it takes about twenty times its bytes
KAFKA_CONTROL_REQUEST_BYTES_MAX = 8 * MIB  # the same for all but Produce: objects take more memory than bytes
KAFKA_PARTITIONS_PER_REQUEST_MAX = 100_000  # in one Produce
KAFKA_CONNECTIONS_MAX = 10_000
KAFKA_REQUESTS_IN_FLIGHT_MAX = 4096  # received without a response on one connection; above it, reading stops
KAFKA_BYTES_IN_FLIGHT_MAX = 32 * MIB  # the same in bytes
KAFKA_BYTES_IN_FLIGHT_TOTAL_MAX = 256 * MIB  # the same for all connections
KAFKA_RECEIVE_BUFFER_BYTES = 256 * KIB  # shared by all connections
KAFKA_BULK_BYTES = 32 * KIB  # a client that sends this much at once, or in a request, gets its own memory …
KAFKA_LANDING_BLOCK_BYTES = 4 * MIB  # … a block that several requests fill …
KAFKA_LANDING_FRAME_BYTES_MAX = 1 * MIB  # … but not larger ones: too much of its end would stay unused
KAFKA_COUNTED_FRAME_BYTES_MIN = 4 * KIB  # an incomplete request of this size counts as received bytes …
KAFKA_RESERVED_FRAME_BYTES_MIN = (
    64 * KIB
)  # … and one of this size is not read before there is room for all of it
KAFKA_RECEIVE_S = 30.0  # an incomplete request without new bytes is given up after this …
KAFKA_RECEIVE_CROWDED_S = 2.0  # … and after this while others wait for the room
KAFKA_RECEIVE_BYTES_PER_S_MIN = 64 * KIB  # the average rate of a request that takes longer
KAFKA_METADATA_PARTITIONS_PER_TURN = 1_000  # described before the event loop serves others
KAFKA_LANDING_FRAMES_MAX = 64  # incomplete ones: each may hold a block
KAFKA_LANDING_BLOCKS_MAX = 32  # free blocks that are reused
KAFKA_KEPT_IN_PLACE_BYTES_MIN = 8 * KIB  # batches of this size are not copied out of it
KAFKA_WRITE_BUFFER_BYTES = 1 * MIB  # responses that a client has not read; above it, reading stops
KAFKA_IDLE_S = 600.0  # an idle connection is closed after this
KAFKA_FETCH_BYTES_MAX = 64 * MIB  # record bytes of one Fetch response, whatever the client allows
KAFKA_CHANGES_AT_ONCE = 256  # topics of one admin request that are changed concurrently
KAFKA_ERROR_MESSAGE_CHARS_MAX = 1024
KAFKA_DESCRIBED_CONFIGS_KEPT = 256  # cached responses for one config each
KAFKA_DESCRIBED_PARTITIONS_MAX = 2000  # in one page of DescribeTopicPartitions
KAFKA_METADATA_BYTES_KEPT = 16 * MIB  # cached requests and responses, for one state of the topics

# Transactions
TRANSACTIONS_CHECK_EVERY_S = 1.0  # interval of checks for timed-out transactions

# Queues
CLAIM_JOBS_MAX = 1_000  # of one claim, and in one ack, nack or extend
CLAIM_BYTES_MAX = 64 * MIB  # of one claim, by the average size of the queue's jobs
SHARES_MAX = 100_000  # partitions that share groups read, counted for each group
SHARE_IN_FLIGHT_MAX = 10_000  # records of one partition that one group has acquired and not acknowledged
SHARE_IN_FLIGHT = 2_000  # its default
SHARE_LOCK_MS = 30_000  # default acquisition lock
SHARE_LOCK_MS_MIN = 1_000
SHARE_LOCK_MS_MAX = 3_600_000
SHARE_DELIVERIES = 5  # deliveries of a record before the group gives up on it
SHARE_DELIVERIES_MAX = 100
SHARE_SESSIONS_MAX = 10_000  # of share consumers on one broker
SHARE_SESSION_PARTITIONS_MAX = 100_000  # of all these sessions
GROUP_SETTINGS_MAX = 64
GROUPS_WITH_SETTINGS_MAX = 100_000
LEASE_MS_MIN = 100
LEASE_MS_MAX = 86_400_000
NACK_DELAY_MS_MAX = 365 * 86_400_000
CLAIM_JITTER_MS_MAX = 5_000
QUEUE_NODE_BYTES_MAX = 128
QUEUE_PIECES_MAX = 256  # ranges of records cached after a claim, for the next one
QUEUE_PIECES_BYTES_MAX = 32 * MIB
DEAD_LETTERS_MOVED_MAX = 100  # by one commit
CLAIMERS_SERVED_MAX = 1_000  # claims served by one commit, where claims are collected

# Watches
WATCH_TOPICS_MAX = 256  # of one session
WATCH_RECORDS_DEFAULT = 256  # in one frame; the maximum is that of a diff
WATCH_BYTES_DEFAULT = 256 * KIB
WATCH_RECORD_BYTES_MAX = 8 * MIB  # a stream with a larger record ends with an error
WATCH_PAGES_MAX = 16  # pages being read or sent at once, which bounds their memory
WATCH_HANDED_PER_TURN = 64  # watchers that get a page before the event loop runs other work
WATCH_SESSION_TTL_MS = 300_000  # a session without a connection is deleted after this
WATCH_HEARTBEAT_MS_DEFAULT = 15_000
WATCH_HEARTBEAT_MS_MIN = 1_000
WATCH_HEARTBEAT_MS_MAX = 60_000
WATCH_RETRY_MS = 2_000  # how soon a client reconnects after it lost its stream
WEBSOCKET_MESSAGE_BYTES_MAX = 16 * MIB  # one command
WEBSOCKET_COMMANDS_MAX = 64  # received without a response on one socket; above it, reading stops
WEBSOCKET_TOPICS_MAX = 1_024  # subscribed to through one socket

# Retention
RETENTION_EVERY_S = 30.0

# Brokers of one shared log
MEMBERS_MAX = 256
MEMBER_ADDRESSES_MAX = 16
MEMBER_HEARTBEAT_S = 1.0  # a broker commits at least this often …
MEMBER_ALONE_HEARTBEAT_S = 15.0  # … and a single one this often: each commit to a bucket is a billed request
MEMBER_SUSPECT_S = 2.0  # without a heartbeat for this long, clients are sent to other brokers …
MEMBER_SILENT_S = 3.5  # … and after this the other brokers expire it
MEMBER_REJOIN_S = 0.2  # between two attempts of an expired broker to rejoin
FOLLOW_RETRY_S = 0.5  # between two attempts to read other brokers' commits while the store is unavailable …
FOLLOW_TOLD_S = 10.0  # … which is logged this often
UPKEEP_EVERY_S = 5.0  # maintenance interval of a shared log: seal, checkpoint, delete objects …
UPKEEP_QUIET_S = 20.0  # … and while no object is sealed
POSITION_WAIT_S = 5.0  # how long a reader waits for a position that it names
CLOCK_SKEW_MS_MAX = 500  # against the store's clock; above it, a broker proposes nothing that depends on time
CLOCK_CHECK_S = 30.0
LINGER_MS_BUCKET = 100  # how long records wait for others before they are put into a bucket together
UPLOADS_IN_FLIGHT_MAX = 4  # concurrent uploads of payloads

# Security
SCRAM_CREDENTIALS_MAX = 100_000
SCRAM_ITERATIONS_MIN = 4_096
SCRAM_ITERATIONS_MAX = 16_384  # a login with a plain password costs this many hashes
SCRAM_SALT_BYTES_MAX = 256
ACCESS_RULES_MAX = 100_000
ACCESS_RULE_CHARS_MAX = 1_024  # of a resource, a principal or a host
CLIENT_QUOTAS_MAX = 100_000  # users, client ids and pairs of them with a quota
QUOTA_RATE_MAX = float(1 << 63)  # what clients send for "unlimited"
QUOTA_WINDOW_S = 10.0  # how far a client may exceed its rate before it is throttled
QUOTA_THROTTLE_MS_MAX = 20_000  # of one throttle; less than the request timeout of clients
QUOTA_METERS_KEPT = 100_000  # of clients seen recently
ACCESS_DECISIONS_KEPT = 100_000  # cached decisions of the access rules, until a rule changes
KAFKA_UNAUTHENTICATED_REQUEST_BYTES_MAX = 64 * KIB  # before a client has authenticated
TLS_HANDSHAKE_S = 15.0
KAFKA_TLS_SHUTDOWN_S = 2.0  # for a client's close_notify
KAFKA_TOKEN_BYTES_MAX = 16 * KIB  # of an OAuth bearer
KAFKA_TOKEN_KEYS_MAX = 100  # in a JWKS: a token without a key id is checked against each key of its algorithm
KAFKA_TOKEN_TIME_S_MAX = 253_402_300_799  # the end of the year 9999; clients that send milliseconds exceed it
KAFKA_TOKEN_CHECK_THREADS = 1  # so that a flood of tokens uses at most one core
KAFKA_TOKEN_CHECKS_WAITING_MAX = 1_024  # tokens whose signature is being checked or waits for the check
KAFKA_PASSWORD_CHECKS_WAITING_MAX = 256  # a check takes about 10 ms
KAFKA_PASSWORDS_REMEMBERED = 10_000  # passwords that matched
KAFKA_TOKENS_REMEMBERED = 10_000  # tokens whose signature was checked

# Inspection
CHECK_PROBLEMS_MAX = 10_000  # listed by one check; more are only counted
