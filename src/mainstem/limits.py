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
BATCH_DECODED_BYTES_MAX = 256 * MIB  # what one compressed batch may unpack to
HEADERS_PER_RECORD_MAX = 10_000
HEADERS_PER_DECODE_MAX = 8 * MIB  # headers decoded by one call, which bounds its memory
DECODE_CALL_BYTES = 4 * MIB  # record bytes decoded by one kernel call; a larger batch goes alone
DECODE_CALL_RECORDS = 64 * KIB  # records decoded by one kernel call; a larger batch goes alone
DECODE_CALL_BATCHES = 16 * KIB  # batches decoded by one kernel call
INTERPRETED_RECORDS_MAX = 48  # up to here plain Python beats the cost of calling a compiled kernel
ZSTD_WINDOW_BYTES_MAX = 128 * MIB  # memory a zstd frame may ask for

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
CHECKPOINTS_KEPT = 2
IOVECS_MAX = 1024  # buffers in one pwritev, the kernel's IOV_MAX
FRAME_JOINED_BYTES_MAX = 256 * KIB  # a smaller commit is joined into one buffer: cheaper than many iovecs
SLICE_JOINED_BYTES_MAX = 4 * KIB  # slices this small on average are joined whatever their number
SEGMENT_ZEROING_STEP_BYTES = 1 * MIB  # the next WAL file is pre-zeroed in steps an append can wait for
SHORTCUT_BYTES_MAX = 32 * KIB  # commits up to this size may be written on the event loop itself
SHORTCUT_SLOW_S = 0.001  # a write there that takes longer closes the shortcut …
SHORTCUT_CLOSED_S = 1.0  # … for this long
SEGMENT_ZEROING_PAUSE_S = 0.01  # between two steps
FOLLOW_CHUNK_COMMITS = 4096  # commits handed out at a time by `follow`
FOLLOW_WINDOW_BYTES = 4 * MIB  # bytes read at a time by `follow`
SEGMENT_FILES_OPEN_MAX = 128  # read-only WAL files kept open

# Read path
TAIL_CACHE_BYTES = 64 * MIB
READ_BYTES_DEFAULT = 1 * MIB
READ_BYTES_MAX = 64 * MIB
READ_WAIT_MS_MAX = 300_000
SEALED_INDEXES_IN_MEMORY = 8  # whole per-segment extent indexes kept decoded
EPHEMERAL_STREAM_BYTES_MAX = 16 * MIB  # RAM one ephemeral stream may hold; older records give way

# Ledger
PRODUCER_BATCHES_KEPT = 5  # duplicates among this many last batches answer the original offset
PRODUCERS_MAX = 1_000_000
PRODUCER_IDLE_MS = 7 * 24 * 3600 * 1000
PRODUCER_TIME_STEP_MS = 60_000  # how finely the ledger knows when a producer was last heard of
COMMIT_IDS_KEPT_PER_BROKER = 1024
CURSOR_METADATA_BYTES_MAX = 4096
CURSORS_MAX = 4_000_000  # (group, stream) pairs

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
GROUP_CONSUMER_SESSION_MS = 45_000  # of members whose partitions the broker assigns
GROUP_CONSUMER_HEARTBEAT_MS = 1_000  # how often they report: what a rebalance takes, mostly
OFFSETS_RETENTION_MS = 7 * 24 * 3600 * 1000
OFFSETS_EXPIRY_EVERY_MS = 600_000
OFFSETS_EXPIRY_GRACE_MS = 600_000  # after a start, so that members are back before their group looks empty

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

# Retention
RETENTION_EVERY_S = 30.0

# Inspection
CHECK_PROBLEMS_MAX = 10_000  # listed by one check; more are only counted
