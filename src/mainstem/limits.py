"""Every bound in one place. Units stand last in the name."""

from __future__ import annotations

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

# Names
NAME_CHARS_MAX = 255
PARTITIONS_PER_TOPIC_MAX = 10_000
TOPICS_MAX = 100_000

# Records
RECORD_BYTES_MAX = 64 * MIB  # one record, decoded
BATCH_BYTES_MAX = 64 * MIB  # one record batch as stored; a topic's own limit is usually far lower
BATCH_RECORDS_MAX = 1 << 20  # records in one batch
BATCH_DECODED_BYTES_MAX = 256 * MIB  # what one compressed batch may unpack to
HEADERS_PER_RECORD_MAX = 10_000

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
COMMIT_IDS_KEPT_PER_BROKER = 1024
CURSOR_METADATA_BYTES_MAX = 4096

# Text door
TEXT_FRAME_BYTES_MAX = 65_536
TEXT_CONNECTIONS_MAX = 10_000
TEXT_SEGMENT_ENTRIES = 1_000_000
SHUTDOWN_DRAIN_S = 10.0
