"""One module per Kafka API, and what several of them share."""
