"""Who a Kafka client is, and what it may do."""
