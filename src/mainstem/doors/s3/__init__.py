"""The S3 door: users' buckets, and the files of tables in the bucket `tables`, for S3 clients."""
