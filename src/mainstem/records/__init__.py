"""RecordBatch v2: reading its header, checking, building and rewriting it."""
