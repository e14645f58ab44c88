"""Every bound in one place. Units stand last in the name."""

from __future__ import annotations

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

# Names
NAME_CHARS_MAX = 255
PARTITIONS_PER_TOPIC_MAX = 10_000
TOPICS_MAX = 100_000
STREAMS_MAX = (1 << 32) - 1  # stream numbers ever handed out; a slice row holds 32 bits
TOPIC_SETTING_CHARS_MAX = 64 * KIB  # one setting's value, as text
OFFSET_MAX = 1 << 62  # of an offset or a byte count, so that sums stay within 64 bits

# Records
RECORD_BYTES_MAX = 64 * MIB  # one record, decoded
BATCH_BYTES_MAX = 64 * MIB  # one record batch as stored; a topic's own limit is usually far lower
BATCH_RECORDS_MAX = 1 << 20  # records in one batch
CRC_JOINED_BYTES_MIN = 256 * KIB  # a smaller slice is checksummed sooner than its CRC is put together
BATCH_DECODED_BYTES_MAX = 256 * MIB  # what one compressed batch may unpack to
HEADERS_PER_RECORD_MAX = 10_000
HEADERS_PER_DECODE_MAX = 8 * MIB  # headers decoded by one call, which bounds its memory
DECODE_CALL_BYTES = 4 * MIB  # record bytes decoded by one kernel call; a larger batch goes alone
DECODE_CALL_RECORDS = 64 * KIB  # records decoded by one kernel call; a larger batch goes alone
DECODE_CALL_BATCHES = 16 * KIB  # batches decoded by one kernel call
INTERPRETED_RECORDS_MAX = 48  # up to here plain Python beats the cost of calling a compiled kernel
RECOMPRESSED_INLINE_BYTES_MAX = 4 * KIB  # a slice this small changes its codec on the event loop
JSON_NESTING_MAX = 512  # levels of arrays and objects in a value that is shown as JSON
ZSTD_WINDOW_BYTES_MAX = 128 * MIB  # memory a zstd frame may ask for

# Records in Parquet
PARQUET_ROW_GROUP_BYTES = 64 * MIB  # of rows in memory; what a reader unpacks at once, and a writer holds
PARQUET_ROW_GROUP_ROWS_MAX = 1_000_000
PARQUET_PAGE_BYTES = 1 * MIB
PARQUET_READ_ROWS = 64 * KIB  # rows unpacked at a time by a reader
LAKE_READ_BYTES = 8 * MIB  # of the log, fetched and decoded at a time by a worker
LAKE_READ_GAP_BYTES_MAX = 16 * KIB  # slices closer than this are fetched by one read of a file
REPORTS_OF_A_KIND_MAX = 64  # pipelines, or drivers of the lake, whose last report is kept
REPORT_BYTES_MAX = 256 * KIB
LAKE_DRIVER_SILENT_MS = 120_000  # a driver not heard of for so long is gone
LAKE_TOPICS_MEASURED_MAX = 50  # whose lag is among the metrics
GROUPS_MEASURED_MAX = 200  # consumer groups whose members and lag are among the metrics
GROUP_CURSORS_MEASURED_MAX = 10_000  # cursors of theirs that a scrape looks at
PIPELINE_SILENT_MS = 60_000  # a pipeline at work that was not heard of for so long is called silent
PIPELINE_KEPT_MS = 86_400_000  # then its last report is forgotten
PIPELINE_OUTPUTS_MAX = 64  # in a report
PIPELINE_TOPICS_MAX = 256  # in a report
PIPELINE_POSITIONS_MAX = 4_096  # partitions that a report tells of, for each output
PIPELINE_ERROR_CHARS_MAX = 2_000
LAKE_FILES_OPEN_MAX = 64  # files a task writes to at once; each day has its own
LAKE_PART_BYTES = 1 * GIB  # of rows in memory that one part is made of; a task with more makes several
LAKE_DAYS_PER_TASK_MAX = 2_000  # a task whose records lie in more days ends early
REBATCHED_BYTES = 1 * MIB  # a batch made of rows has about this size, or is a single larger record

# Commit path
GROUP_COMMIT_BYTES_MAX = 8 * MIB  # payload of one commit
GROUP_COMMIT_COMMANDS_MAX = 16_384  # commands and slices in one commit
PENDING_BYTES_MAX = 64 * MIB  # proposed but not yet written; beyond it callers wait
ENTRY_BYTES_MAX = 64 * MIB  # one encoded entry
CEILING_STEP_RECORDS = 64 * KIB  # how far a relaxed stream may run ahead of its synced ceiling
DIGEST_EVERY_COMMITS = 4096

# Local storage
SEGMENT_BYTES = 128 * MIB  # a WAL file is sealed past this size
CHECKPOINT_EVERY_BYTES = 512 * MIB  # WAL written between two checkpoints, which bounds replay
CHECKPOINT_HURRIED_S = 300.0  # the same of a shared log where objects wait for nothing else to go
REPLAYED_COMMIT_BYTES = 32 * KIB  # what a commit to a shared log counts for there: each is a request
CHECKPOINTS_KEPT = 2
DIVERGENCES_SHOWN = 100  # differences listed when digests disagree
IOVECS_MAX = 1024  # buffers in one pwritev, the kernel's IOV_MAX
FRAME_JOINED_BYTES_MAX = 256 * KIB  # a smaller commit is joined into one buffer: cheaper than many iovecs
SLICE_JOINED_BYTES_MAX = 4 * KIB  # slices this small on average are joined whatever their number
SEGMENT_ZEROING_STEP_BYTES = 1 * MIB  # the next WAL file is pre-zeroed in steps an append can wait for
SHORTCUT_BYTES_MAX = 32 * KIB  # commits up to this size may be written on the event loop itself
SHORTCUT_SLOW_S = 0.001  # a write there that takes longer closes the shortcut …
SHORTCUT_CLOSED_S = 1.0  # … for this long
SEGMENT_ZEROING_PAUSE_S = 0.01  # between two steps
FULL_DISK_RETRY_S = 0.5  # a start on a full disk tries again this often
BACKUP_CHUNK_BYTES = 32 * MIB  # a backup cuts files into these
FOLLOW_CHUNK_COMMITS = 4096  # commits handed out at a time by `follow`
FOLLOW_WINDOW_BYTES = 4 * MIB  # bytes read at a time by `follow`
SEGMENT_FILES_OPEN_MAX = 128  # read-only WAL files kept open

# The commit log in etcd
ETCD_ENTRY_BYTES_MAX = 64 * KIB  # a larger entry goes to the object store, behind its payload
ETCD_CALL_S = 5.0  # one attempt of a call
ETCD_RETRY_S = 15.0  # all attempts of a call: an election takes a second or two
ETCD_WATCH_PAUSE_S = 0.1  # before a watch that was lost is started again
ETCD_WATCH_IDLE_S = 5.0  # a watch that brings nothing for so long is started again
ETCD_RANGE_COMMITS = 256  # commits read at a time
ETCD_RANGE_BYTES_MAX = 64 * MIB  # one answer
ETCD_OBJECT_COMMITS_MAX = 16 * KIB  # commits in one object, which bounds what is kept of an open one
ETCD_RETENTION_MS = (
    3_600_000  # commits stay so long after their object is sealed: longer than any retry or lag
)
ETCD_TRUNCATED_AT_ONCE = 10_000  # commits deleted by one call
ETCD_DIRECTORIES_IN_MEMORY = 64  # of sealed objects: which commits they hold
PAYLOAD_ORPHAN_MS = 3_600_000  # an upload that no commit names is deleted after this
ETCD_UPLOAD_MS_MAX = 60_000  # one that is older when it is committed is put anew: far less than that

# Object stores and the log in one
STORE_ATTEMPTS_MAX = 6  # of one request, the first included
STORE_TRYING_S = 60.0  # spent on one request, attempts and pauses together
STORE_REQUEST_S = 20.0  # one attempt, which bounds how long a stalled put can live
STORE_CONNECT_S = 5.0
STORE_BACKOFF_S = 0.1  # before the second attempt; doubles from there, less a random part
STORE_BACKOFF_MAX_S = 5.0
STORE_LEAVING_S = 1.0  # at exit, for threads of the client that bring an answer
STORE_REQUESTS_MAX = 64  # under way at once, of one event loop
STORE_GAP_BYTES_MAX = 256 * KIB  # ranges closer than this are fetched by one request
STORE_OBJECT_BYTES_MAX = 8 * MIB  # of the objects a bucket log writes; larger content takes several
BLOCK_BYTES = 1 * MIB  # of the block cache
BLOCK_CACHE_MEMORY_BYTES = 64 * MIB
BLOCK_CACHE_DISK_BYTES = 4 * GIB
BUCKET_INLINE_BYTES_MAX = 128 * KIB  # a larger payload goes to objects of its own, put before the entry
BUCKET_REFERENCE_BYTES_MIN = 1 * MIB  # one of at least so much stays there when its object is sealed
BUCKET_REFERENCES_IN_MEMORY = 256  # sealed objects of which is known where their payload is
BUCKET_OBJECT_BYTES = 64 * MIB  # payload after which a bucket log's object is finished …
BUCKET_OBJECT_COMMITS_MAX = 4096  # … or this many commits, which bounds what is read to find one
BUCKET_READS_MAX = 32  # entries fetched at once by a follower
BUCKET_RECENT_BYTES = 16 * MIB  # payload of the newest entries, kept for their readers
BUCKET_POLL_S = 0.025  # how soon a follower at the tail looks again …
BUCKET_POLL_MAX_S = 0.25  # … and how late, when nothing comes
BUCKET_PUT_S = 5.0  # an entry that was not answered for so long, and is not there, is put anew
BUCKET_STALE_S = 60.0  # a writer this long without news of the tail may not write
BUCKET_ENTRIES_KEPT_MS = 3_600_000  # on the store's clock; far longer than a stalled put can live

# Read path
TAIL_CACHE_BYTES = 64 * MIB
HEAP_KEPT_BYTES = 64 * MIB  # freed by the server, and kept for what it receives next
HEAP_BLOCK_BYTES_MAX = 16 * MIB  # larger blocks come from the kernel and go back to it
READ_BYTES_DEFAULT = 1 * MIB
READ_BYTES_MAX = 64 * MIB
READ_WAIT_MS_MAX = 300_000
PART_CHUNK_BYTES = 4 * MIB  # rows of a part made into batches at a time
PART_CHUNKS_AHEAD = 2  # ready before whoever reads a part from front to end asks for them
PART_CACHE_BYTES = 64 * MIB  # batches made of rows, kept for the next who reads there
PART_CURSORS_BYTES = 192 * MIB  # row groups of files that somebody is in the middle of
PART_CURSORS_MAX = 64
PART_THREADS = 2
PART_READ_S = 60.0  # one read of the object store
INDEX_MEMORY_BYTES = (
    16 * MIB
)  # of whole indexes of objects, kept for the next look-up, and of repacked files …
INDEX_MEMORY_OBJECTS_MIN = 3  # … but so many whatever their size: one look-up may need two neighbours …
INDEX_MEMORY_FILES_MIN = 16  # … or bisect thousands of repacked rounds
OPEN_EXTENTS_MAX = 512 * KIB  # slices in one object, which bounds what memory keeps of one that grows
EPHEMERAL_STREAM_BYTES_MAX = 16 * MIB  # RAM one ephemeral stream may hold; older records give way

# Ledger
PRODUCER_BATCHES_KEPT = 5  # duplicates among this many last batches answer the original offset
PRODUCERS_MAX = 1_000_000
PRODUCER_IDLE_MS = 7 * 24 * 3600 * 1000
PRODUCER_TIME_STEP_MS = 60_000  # how finely the ledger knows when a producer was last heard of
IDEMPOTENCY_KEYS_MAX = 1_000_000  # of all streams; the oldest give way
COMMIT_IDS_KEPT_PER_BROKER = 1024
CURSOR_METADATA_BYTES_MAX = 4096
TRANSACTIONAL_IDS_MAX = 100_000
TRANSACTIONAL_ID_CHARS_MAX = 1024
TRANSACTIONAL_ID_IDLE_MS = 7 * 24 * 3600 * 1000  # unused for so long, an id is forgotten
TRANSACTION_TIMEOUT_MS_MAX = 900_000
TRANSACTION_STREAMS_MAX = 100_000  # partitions one transaction may write to
TRANSACTION_GROUPS_MAX = 1_000  # groups whose offsets one transaction may commit
TRANSACTION_OFFSETS_MAX = 100_000
CURSORS_MAX = 4_000_000  # (group, stream) pairs
SINKS_MAX = 100_000  # queries that write batches, each with its last one remembered
SINK_ATTEMPTS_MAX = 100_000  # tries at tasks of one batch, before it is committed
SINK_NAME_CHARS_MAX = 200
SINK_IDLE_MS = 90 * 24 * 3600 * 1000  # a query that wrote nothing for so long is forgotten …
SINK_ONCE_IDLE_MS = 3600 * 1000  # … one that writes a single batch far sooner: only a lost answer is repeated
SINKS_CHECK_EVERY_S = 60.0

# Tables
NAMESPACES_MAX = 10_000
NAMESPACE_CHARS_MAX = 2_048  # all of its levels together
TABLES_MAX = 100_000
NAMESPACE_PROPERTIES_CHARS_MAX = 64 * KIB  # of one namespace, names and values
TABLE_COLUMNS_MAX = 1_000  # typed ones, beside the raw ones
TABLE_COLUMN_DEPTH_MAX = 16  # keys in a column's path
TYPED_ROWS_AT_ONCE = 4_096  # values decoded to typed columns in one go
TYPED_REASON_CHARS_MAX = 512  # why a value does not fit its columns
COMPACTION_KEYS_AT_ONCE = 1_000_000  # rows held before only the last one a key is kept of them
TABLE_DECLARATION_CHARS_MAX = 256 * KIB  # of one topic's columns, as JSON
TABLE_PARTS_PER_ROUND = 1_000  # new parts of one table that are published in one go
TABLE_SNAPSHOTS_KEPT = 100  # of a topic's table: what a commit costs grows with them
TABLE_SNAPSHOT_AGE_MS = 5 * 24 * 3600 * 1000  # older ones go as well, but for the current one
TABLE_EXPIRY_EVERY_MS = 3600 * 1000  # how often a table that stands still is looked at for old snapshots
TABLE_MANIFESTS_PER_TIER = 32  # so many manifests of like size are joined into one
TABLE_SWEEP_EVERY_COMMITS = 50
TABLE_ORPHAN_MS = 3600 * 1000  # files of a table that nothing names are deleted after this
TABLE_LOCATION_CHARS_MAX = 4_096
TABLES_PER_COMMIT_MAX = 1_000  # tables of one transaction
TABLE_METADATA_KEPT = 16  # parsed metadata of tables that a broker keeps at hand
TABLE_COMMIT_TRIES = 8  # of a client's commit, while others come first and its requirements hold
TABLE_SNAPSHOTS_HELD_MAX = 10_000  # of a topic's table; its publisher keeps far fewer

# The lake's ledger
TASKS_MAX = 100_000  # pieces of the lake's work held at once
TASK_NAME_CHARS_MAX = 500  # and of its holder's
SWAP_FILES_MAX = 100_000  # parts and files of one swap
OBJECT_KEY_CHARS_MAX = 1_024

# Repack
REPACK_AFTER_OBJECTS = 8  # sealed objects of the log that wait before the oldest are repacked …
REPACK_LEAST_BYTES = 16 * MIB  # … and so much in them, since a little is not worth it, …
REPACK_SMALL_OBJECTS_MAX = 256  # … or so many objects
REPACK_ROUND_BYTES = 128 * MIB  # of the log's objects that one round takes, but one object at least
REPACK_MERGED_ROUNDS = 16  # so many neighbours become one …
REPACK_MERGED_BYTES_MAX = 8 * GIB  # … unless that were larger
REPACK_LEVELS_MAX = 2  # how often bytes are copied to stand closer together
REPACK_DEAD_RATIO = 0.5  # of a round's bytes; then what is left of it is written anew
REPACK_SCAN_FILES = 64  # looked at in one go to find such a round …
REPACK_SCAN_EVERY_S = 60.0  # … no more often than this
REPACK_STREAMS_AT_ONCE = 1024  # looked at before others have their turn on the loop
REPACK_READ_BYTES = 4 * MIB  # copied at a time
REPACK_READ_GAP_BYTES = 64 * KIB  # slices closer than this are fetched by one read
REPACK_BYTES_PER_S = 64 * MIB  # read and copied by default
REPACK_GIVES_WAY_BYTES_PER_S = 32 * MIB  # while more is written repacking waits, unless much does already …
REPACK_GIVES_WAY_S = 0.2  # … for so long at a time
REPACK_EVERY_S = 5.0  # what there is to repack is looked at
REPACK_GRACE_S = 60.0  # what was replaced stays this long for whoever still reads it
REPACK_ORPHANS_EVERY_S = 3_600.0
REPACK_ORPHAN_GRACE_MS = 3_600_000  # a file of another broker that was never published is deleted after this
REPACK_DEBT_OBJECTS_MAX = 64  # sealed objects that wait; with more than these, writes are slowed down
REPACK_HELD_BACK_S = 0.002  # a group of commands waits for each object beyond …
REPACK_HELD_BACK_S_MAX = 0.1  # … but no longer than this
REPACKED_FILE_BYTES = 32 * MIB  # of payload, built in memory
REPACKED_FILE_EXTENTS_MAX = 64 * KIB  # which bounds its index
REPACKED_FILES_PER_ROUND_MAX = 10_000
REPACKED_READS_AHEAD = 4  # fetched together for one who reads a stream from front to end …
REPACKED_AHEAD_BYTES_MIN = 64 * KIB  # … by reads of no less …
REPACKED_AHEAD_BYTES_MAX = (
    4 * MIB
)  # … and no more than this; with so much together, no further one is fetched
REPACKED_READERS_MAX = 32  # read ahead for, or remembered
REPACKED_EXTENT_BYTES = 32 * KIB  # small slices that follow each other are joined up to this

# The lake
HOT_RETAIN_BYTES = 8 * GIB  # of sealed objects that a disk keeps when an object store has them too
TIER_EVERY_S = 10.0  # how often somebody looks what may go to the store, or out of it, unless woken
TIER_PAUSE_MAX_S = 300.0  # between two attempts while the store does not answer
TIER_PUTS_MAX = 4  # parts of an object on their way to the store at once
TIER_BYTES_PER_S = 64 * MIB  # to the store, so that readers and writers have the rest
TIER_GRACE_MS = 600_000  # a copy that nobody needs stays this long for whoever was sent there
STORE_READS_MAX = 1_024  # reads that wait for an object store; more are refused, to be tried again
STORE_READ_THREADS = 16  # that wait for an object store; reads of the disk have others
TIERS_MAX = 1_000_000  # objects of a local log that an object store has
LAKE_TASK_BYTES = 256 * MIB  # of the log, or of part files, that one task reads
LAKE_TASK_EXTENTS_MAX = 200_000  # slices one task reads, which bounds the plan that lists them
LAKE_TASK_PIECES_MAX = 20_000  # the same where each slice may be an object of the store, named in the plan
LAKE_TASK_RUNS_MAX = 20_000  # stretches of copies one task reads, each stored elsewhere
LAKE_RANGES_PER_LEASE_MAX = 4  # consecutive ranges of one stream, for as many workers
LAKE_TASKS_PER_PLAN_MAX = 256
LAKE_MERGE_PARTS_MIN = 8  # so many small neighbours become one
LAKE_SMALL_PART_BYTES = 32 * MIB
LAKE_COMPACT_DIRTY_RATIO = 0.5  # of a stream's part bytes that were never compacted
LAKE_GARBAGE_GRACE_MS = 600_000  # a file that was replaced stays this long for whoever still reads it
LAKE_ORPHAN_GRACE_MS = 3_600_000  # a file that was never published is deleted after this
LAKE_LEASE_SLACK_MS = 60_000  # a lease may be late by so much before it is ended for whoever forgot it
LAKE_COLLECT_EVERY_S = 60.0
LAKE_RETRY_S = 5.0  # a stream or table that failed is tried again after this, doubled with each failure …
LAKE_RETRY_MAX_S = 600.0  # … up to this
LAKE_FAILURES_REPORTED_MAX = 100  # topics that a driver's report names …
LAKE_FAILURE_CHARS_MAX = 300  # … each with so much of what is wrong
LAKE_DELETED_AT_ONCE = 1_000  # files between two commits that say so

# Groups
GROUPS_MAX = 100_000  # with members, or lately so; committed offsets alone do not count
GROUP_MEMBERS_MAX = 10_000
GROUP_PROTOCOLS_PER_MEMBER_MAX = 64
GROUP_MEMBER_BYTES_MAX = 1 * MIB  # a member's metadata, and again its assignment
GROUP_TOPICS_PER_MEMBER_MAX = 10_000  # names in one subscription
GROUP_REGEX_CHARS_MAX = 1_024
GROUP_SESSION_MS_MIN = 100  # Kafka's 6 s would keep a laptop waiting
GROUP_SESSION_MS_MAX = 1_800_000
GROUP_REBALANCE_MS_MAX = 86_400_000
GROUP_INITIAL_DELAY_MS = 50  # an empty group waits this long for more first members than one
GROUP_EXPECTED_MS = 4_000  # that a group's members of before a start are waited for: they ask every 3 s
GROUP_GENERATIONS_MAX = 10_000  # groups whose last members the ledger knows
GROUP_GENERATION_MEMBERS_MAX = 1_000  # of a larger group it knows none
GROUP_GENERATION_CHARS_MAX = 1_024  # of a member's id
GROUP_GENERATION_MAX = 2**31 - 1
CONSUMER_GROUP_BYTES_MAX = 4 * MIB  # of a larger group that the broker assigns to the ledger knows nothing
CONSUMER_GROUPS_BYTES_MAX = 32 * MIB  # of all of them that it knows
GROUP_CONSUMER_SESSION_MS = 45_000  # of members whose partitions the broker assigns
GROUP_CONSUMER_HEARTBEAT_MS = 1_000  # how often they report: what a rebalance takes, mostly
OFFSETS_RETENTION_MS = 7 * 24 * 3600 * 1000
OFFSETS_EXPIRY_EVERY_MS = 600_000
OFFSETS_EXPIRY_GRACE_MS = 600_000  # after a start, so that members are back before their group looks empty

# HTTP door
HTTP_BODY_BYTES_MAX = 64 * MIB  # one request's body, and again what it unpacks to
HTTP_INGEST_BYTES_MAX = 256 * MIB  # bodies being received and written; beyond it writes are throttled
HTTP_PACKED_BYTES_MIN = 1 * KIB  # a smaller answer is sent as it is, whatever the client takes
HTTP_CONNECTIONS_MAX = 20_000
HTTP_INFLIGHT_PER_KEY_MAX = 1_000
HTTP_WATCH_SESSIONS_MAX = 10_000
HTTP_STREAMS_MAX = 10_000
HTTP_STREAMS_PER_KEY_MAX = 1_000
HTTP_HEAD_BYTES_MAX = 64 * KIB  # request line and headers
HTTP_HEAD_S = 10.0  # a request's head must be complete so long after its first byte
HTTP_STALL_S = 30.0  # a body that brings nothing for this long is given up, and so is an answer nobody reads
HTTP_STALL_BYTES_MIN = 4 * KIB  # … or so little in that time: a body that drips gains none by it
HTTP_IDLE_S = 75.0  # a connection without a request is closed after this
HTTP2_STREAMS_MAX = 256  # requests under way on one connection
HTTP2_STREAM_WINDOW_BYTES = 1 * MIB  # of a body, received and not yet taken
HTTP2_CONNECTION_WINDOW_BYTES = 16 * MIB  # the same of all bodies of a connection
HTTP2_RESETS_MAX = 1_000  # requests a connection may start and take back
HTTP_WRITE_RECORDS_MAX = 10_000  # of one POST
HTTP_RECORD_BYTES_MAX = 1 * MIB  # data and meta of one record
HTTP_TAG_BYTES_MAX = 256
HTTP_NODE_BYTES_MAX = 128
HTTP_META_BYTES_MAX = 16 * KIB
HTTP_META_KEYS_MAX = 64
HTTP_IDEMPOTENCY_KEY_BYTES_MAX = 256
DELETE_RECORDS_PER_COMMAND = 100_000  # a larger delete takes several commands
DELETE_SIZING_BYTES_MAX = 64 * MIB  # read to learn how many bytes go; beyond it the average is taken
DIFF_RECORDS_DEFAULT = 256
DIFF_RECORDS_MAX = 1_000
DIFF_BYTES_DEFAULT = 1 * MIB
DIFF_BYTES_MAX = 8 * MIB
RENDERED_ON_LOOP_BYTES_MAX = 512 * KIB  # a larger page is made to JSON by a thread
DIFF_WAIT_MS_MAX = 30_000
TOPIC_PAGE_DEFAULT = 100
TOPIC_PAGE_MAX = 1_000

# What people are shown at once.
MESSAGES_SHOWN_DEFAULT = 50
MESSAGES_SHOWN_MAX = 500
MESSAGES_SCANNED_MAX = 20_000  # records looked through for one page
MESSAGES_READ_BYTES_MAX = 16 * MIB  # read for one page
MESSAGES_CHUNK_BYTES = 512 * KIB
MESSAGE_VALUE_BYTES_DEFAULT = 16 * KIB  # of a value, unless all of it is asked for
LEASES_SHOWN = 500
STORAGE_OBJECTS_SHOWN = 200
STORAGE_REPACKED_SHOWN = 50  # repacked files, each of which has its index read
STORAGE_PARTS_SHOWN = 500
STORAGE_RANGES_SHOWN = 50
STORAGE_OPEN_EXTENTS_MAX = 100_000  # of the file that grows: more are not sorted for being shown
ROUTERS_MAX = 10_000
ROUTER_HOPS_MAX = 8  # a copy that would be one for so many times is dropped
ROUTER_COPIED_RECORDS_MAX = 10_000  # appended by one commit
ROUTER_COPIED_BYTES_MAX = 1 * MIB  # read for one commit, before they are unpacked …
ROUTER_COPIES_BYTES_MAX = 16 * MIB  # … and after
ROUTER_COPIED_INLINE_BYTES = 4 * KIB  # so few are copied on the event loop
ROUTER_PAUSE_S_MIN = 0.002  # before a round, so that it forwards what came together …
ROUTER_PAUSE_S_PER_LEG = 50e-6  # … and longer the more it has to do, so that most of the time is the writers'
ROUTER_RETRY_S = 1.0  # how soon a full destination is tried again
PASSED_LOSSES_MAX = 128  # of a stream, that deletes passed over: of more the oldest are told of as one

# Text door
TEXT_FRAME_BYTES_MAX = 65_536
TEXT_CONNECTIONS_MAX = 10_000
TEXT_SEGMENT_ENTRIES = 1_000_000
TEXT_PIPELINE_REQUESTS_MAX = 4096  # received and unanswered on one connection; beyond it nothing is read
TEXT_PIPELINE_BYTES_MAX = 512 * KIB  # the same in bytes
TEXT_BATCH_RECORDS_MAX = 64  # pipelined PUTs in one batch: a GET unpacks the batch up to its record
TEXT_TAKES_PER_RUN_MAX = 64  # pipelined GETs served by one commit
TEXT_WRITE_BUFFER_BYTES = 256 * KIB  # answers a client has not read; beyond it no request is served
TEXT_STALL_S = 60.0  # a client that reads nothing for this long is cut off
TEXT_LINGER_S = 1.0  # how long a refused client may go on sending, so that it gets to read why
TEXT_STATE_SEGMENTS_MAX = 10_000  # newest segments listed by one STATE
SHUTDOWN_DRAIN_S = 10.0

# Kafka door
KAFKA_REQUEST_BYTES_MAX = 100 * MIB  # one request, checked before anything is allocated
KAFKA_MESSAGE_BYTES_MAX = 8 * MIB  # a request without records: unpacked it takes some twenty times its bytes
KAFKA_CONTROL_REQUEST_BYTES_MAX = 8 * MIB  # the same for all but Produce: objects take more room than bytes
KAFKA_PARTITIONS_PER_REQUEST_MAX = 100_000  # in one Produce
KAFKA_CONNECTIONS_MAX = 10_000
KAFKA_REQUESTS_IN_FLIGHT_MAX = 4096  # received and unanswered on one connection; beyond it nothing is read
KAFKA_BYTES_IN_FLIGHT_MAX = 32 * MIB  # the same in bytes
KAFKA_BYTES_IN_FLIGHT_TOTAL_MAX = 256 * MIB  # the same of all connections together
KAFKA_RECEIVE_BUFFER_BYTES = 256 * KIB  # shared by all connections
KAFKA_BULK_BYTES = 32 * KIB  # who sends as much, at once or in a request, is received into memory to keep …
KAFKA_LANDING_BLOCK_BYTES = 4 * MIB  # … a block of which several requests fill …
KAFKA_LANDING_FRAME_BYTES_MAX = 1 * MIB  # … but not larger ones: too much of its end would stay empty
KAFKA_LANDING_FRAMES_MAX = 64  # of which a part is yet to come: each may hold a block
KAFKA_LANDING_BLOCKS_MAX = 32  # that are filled again when they are free
KAFKA_KEPT_IN_PLACE_BYTES_MIN = 8 * KIB  # batches as large are not copied out of it
KAFKA_WRITE_BUFFER_BYTES = 1 * MIB  # answers a client has not read; beyond it nothing is read from it
KAFKA_IDLE_S = 600.0  # a connection on which nothing happens for this long is closed
KAFKA_FETCH_BYTES_MAX = 64 * MIB  # record bytes of one Fetch answer, whatever the client allows
KAFKA_CHANGES_AT_ONCE = 256  # topics of one admin request that are worked on side by side
KAFKA_ERROR_MESSAGE_CHARS_MAX = 1024
KAFKA_DESCRIBED_CONFIGS_KEPT = 256  # encoded answers for one config each
KAFKA_DESCRIBED_PARTITIONS_MAX = 2000  # in one page of DescribeTopicPartitions
KAFKA_METADATA_BYTES_KEPT = 16 * MIB  # requests and their encoded answers, for one state of the topics

# Transactions
TRANSACTIONS_CHECK_EVERY_S = 1.0  # how often those that take too long are looked for

# Queues
CLAIM_JOBS_MAX = 1_000  # of one claim, and named by one ack, nack or extend
CLAIM_BYTES_MAX = 64 * MIB  # of one claim, by the average size of the queue's jobs
SHARES_MAX = 100_000  # partitions that share groups read, each group's own
SHARE_IN_FLIGHT_MAX = 10_000  # records of one partition that one group may have handed out and not dealt with
SHARE_IN_FLIGHT = 2_000  # the same, unless the group has another setting
SHARE_LOCK_MS = 30_000  # for which a member has a record
SHARE_LOCK_MS_MIN = 1_000
SHARE_LOCK_MS_MAX = 3_600_000
SHARE_DELIVERIES = 5  # times that a record is handed out before it is given up
SHARE_DELIVERIES_MAX = 100
SHARE_SESSIONS_MAX = 10_000  # of share consumers on one broker
SHARE_SESSION_PARTITIONS_MAX = 100_000  # of all of them together
GROUP_SETTINGS_MAX = 64
GROUPS_WITH_SETTINGS_MAX = 100_000
LEASE_MS_MIN = 100
LEASE_MS_MAX = 86_400_000
NACK_DELAY_MS_MAX = 365 * 86_400_000
CLAIM_JITTER_MS_MAX = 5_000
QUEUE_NODE_BYTES_MAX = 128
QUEUE_PIECES_MAX = 256  # stretches of records kept after a claim, for the next one
QUEUE_PIECES_BYTES_MAX = 32 * MIB
DEAD_LETTERS_MOVED_MAX = 100  # by one commit
CLAIMERS_SERVED_MAX = 1_000  # by one commit, where claims are gathered

# Watching
WATCH_TOPICS_MAX = 256  # of one session
WATCH_RECORDS_DEFAULT = 256  # in one frame; the most is that of a diff
WATCH_BYTES_DEFAULT = 256 * KIB
WATCH_PAGES_MAX = 16  # pages being read or handed out at once, which bounds their memory
WATCH_HANDED_PER_TURN = 64  # watchers given a page before the loop does something else
WATCH_SESSION_TTL_MS = 300_000  # a session nobody is connected to is forgotten after this
WATCH_HEARTBEAT_MS_DEFAULT = 15_000
WATCH_HEARTBEAT_MS_MIN = 1_000
WATCH_HEARTBEAT_MS_MAX = 60_000
WATCH_RETRY_MS = 2_000  # how soon a client comes back that lost its stream
WEBSOCKET_MESSAGE_BYTES_MAX = 16 * MIB  # one command
WEBSOCKET_COMMANDS_MAX = 64  # received and unanswered on one socket; beyond it nothing is read
WEBSOCKET_TOPICS_MAX = 1_024  # subscribed to through one socket

# Retention
RETENTION_EVERY_S = 30.0

# Brokers of one log
MEMBERS_MAX = 256
MEMBER_ADDRESSES_MAX = 16
MEMBER_HEARTBEAT_S = 1.0  # a broker commits at least this often …
MEMBER_ALONE_HEARTBEAT_S = 15.0  # … and one that is alone: each commit to a bucket is a request to pay for
MEMBER_SUSPECT_S = 2.0  # clients are sent to others if it did not for this long …
MEMBER_SILENT_S = 3.5  # … and it is expired by the others after this
MEMBER_REJOIN_S = 0.2  # between two attempts of a broker that was expired
FOLLOW_RETRY_S = 0.5  # between two attempts to read what others commit, while the store is away …
FOLLOW_TOLD_S = 10.0  # … which is told this often
UPKEEP_EVERY_S = 5.0  # the objects of a shared log are looked at: sealed, checkpointed, dropped …
UPKEEP_QUIET_S = 20.0  # … and this often while none of them ends
POSITION_WAIT_S = 5.0  # a reader that names a position waits for it no longer than this
CLOCK_SKEW_MS_MAX = 500  # against the store's; a broker beyond it proposes nothing that depends on the time
CLOCK_CHECK_S = 30.0
LINGER_MS_BUCKET = 100  # how long records wait for others before they are put into a bucket together
UPLOADS_IN_FLIGHT_MAX = 4  # payloads on their way to the store at once

# Who may do what
SCRAM_CREDENTIALS_MAX = 100_000
SCRAM_ITERATIONS_MIN = 4_096
SCRAM_ITERATIONS_MAX = 16_384  # each login of a client that sends its password costs as many hashes
SCRAM_SALT_BYTES_MAX = 256
ACCESS_RULES_MAX = 100_000
ACCESS_RULE_CHARS_MAX = 1_024  # of a resource, a principal or a host
CLIENT_QUOTAS_MAX = 100_000  # users, client ids and pairs of them that have a quota
QUOTA_RATE_MAX = float(1 << 63)  # what clients send for "as much as you like"
QUOTA_WINDOW_S = 10.0  # a client may be this far ahead of its rate before it is held back
QUOTA_THROTTLE_MS_MAX = 20_000  # at once; below the time at which clients give up on a request
QUOTA_METERS_KEPT = 100_000  # of clients seen lately
ACCESS_DECISIONS_KEPT = 100_000  # answers of the access rules that are kept until a rule changes
KAFKA_UNAUTHENTICATED_REQUEST_BYTES_MAX = 64 * KIB  # before a client has logged in
KAFKA_TLS_HANDSHAKE_S = 15.0
KAFKA_TLS_SHUTDOWN_S = 2.0  # for a client to say goodbye
KAFKA_TOKEN_BYTES_MAX = 16 * KIB  # of an OAuth bearer
KAFKA_TOKEN_KEYS_MAX = 100  # in a JWKS: a token without a key id is checked against each key of its algorithm
KAFKA_TOKEN_TIME_S_MAX = 253_402_300_799  # the end of the year 9999; clients that send milliseconds exceed it
KAFKA_TOKEN_CHECK_THREADS = 1  # so a flood of tokens takes one core at most
KAFKA_TOKEN_CHECKS_WAITING_MAX = 1_024  # tokens whose signature is being checked, or waits for that
KAFKA_TOKENS_REMEMBERED = 10_000  # whose signature need not be checked again

# Inspection
CHECK_PROBLEMS_MAX = 10_000  # listed by one check; more are only counted
