"""Authentication and authorization of Kafka clients."""
