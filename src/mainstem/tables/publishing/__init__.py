"""Publish parts to Iceberg and Delta tables. Runs in a driver, which calls a broker."""
