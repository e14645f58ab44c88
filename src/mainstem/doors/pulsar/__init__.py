"""The Pulsar door: Apache Pulsar's binary protocol over TCP."""
