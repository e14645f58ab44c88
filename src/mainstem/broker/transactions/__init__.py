"""Transactions, and the exactly-once sink."""
