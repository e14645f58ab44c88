"""What runs on Spark: the session, the jobs, the data source."""
