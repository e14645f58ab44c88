"""Every topic as an Iceberg table: tasks, Parquet files, snapshots. Talks to a broker over HTTP."""
