"""Every topic as a table: plans, Parquet, Iceberg. Talks to a broker over HTTP."""
