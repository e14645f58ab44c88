"""Subscriptions: cursors that acknowledge records one by one, and the dispatch of records to their consumers."""
