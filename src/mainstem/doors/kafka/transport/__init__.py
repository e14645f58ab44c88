"""Kafka connections: frames, dispatch, versions, errors, quotas."""
