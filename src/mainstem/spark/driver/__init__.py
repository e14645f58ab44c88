"""The lake's driver: a process that plans tasks, runs them on Spark and publishes tables."""
