"""RecordBatch v2: parse, check, build, decode and rewrite batches."""
