"""Keys go where Kafka's clients put them."""

from __future__ import annotations

from aiokafka.partitioner import murmur2 as kafka_murmur2
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.records.partitioner import murmur2, partition_of


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=40))
def test_the_hash_is_the_one_kafka_clients_use(key: bytes) -> None:
    assert murmur2(key) == kafka_murmur2(key) & 0xFFFFFFFF


def test_known_hashes() -> None:
    assert murmur2(b"21") == -973932308 & 0xFFFFFFFF
    assert murmur2(b"foobar") == -790332482 & 0xFFFFFFFF
    assert 0 <= partition_of(b"foobar", 7) < 7
