"""One module per Kafka API, and helpers that several APIs share."""
