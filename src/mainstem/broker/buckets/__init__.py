"""Buckets: users' objects, and the files of tables, as the S3 door serves them."""
