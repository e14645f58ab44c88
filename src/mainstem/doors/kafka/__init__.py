"""The Kafka door: the Kafka wire protocol, so that unmodified Kafka clients work. One file an API."""
