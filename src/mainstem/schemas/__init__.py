"""Schemas: parsing, canonical text, compatibility and payloads of Avro, JSON Schema and Protobuf. No I/O, no state."""
