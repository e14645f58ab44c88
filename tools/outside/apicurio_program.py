"""What the Apicurio serializers do with the registry of a server. It runs with their own packages.

pytest apicurio_program.py, with KAFKA and REGISTRY in the environment
"""

import asyncio
import json
import os
import uuid
from typing import Any

import pytest
from apicurio_serdes import (  # type: ignore[import-not-found]
    ApicurioRegistryClient,
    AsyncApicurioRegistryClient,
    SchemaNotFoundError,
    SchemaRegistrationError,
)
from apicurio_serdes.avro import (  # type: ignore[import-not-found]
    AsyncAvroDeserializer,
    AvroDeserializer,
    AvroSerializer,
    TopicIdStrategy,
)
from apicurio_serdes.serialization import (  # type: ignore[import-not-found]
    MessageField,
    SerializationContext,
    WireFormat,
)
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry import avro as confluent
from confluent_kafka.serialization import MessageField as ConfluentField
from confluent_kafka.serialization import SerializationContext as ConfluentContext

REGISTRY, KAFKA = os.environ["REGISTRY"], os.environ["KAFKA"]
URL = f"{REGISTRY}/apis/registry/v3"
GROUPS = ("default", "com.example.schemas")
VALUE = {"id": 7, "name": "seven"}


def schema(**more: Any) -> dict[str, Any]:
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    return {"type": "record", "name": f"Order{uuid.uuid4().hex}", "fields": fields, **more}


def context(topic: str) -> Any:
    return SerializationContext(topic=topic, field=MessageField.VALUE)


def topic() -> str:
    return f"orders-{uuid.uuid4().hex}"


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("id", ["globalId", "contentId"])
def test_a_schema_is_registered_and_what_it_wrote_is_read(group: str, id: str) -> None:
    name = topic()
    with ApicurioRegistryClient(url=URL, group_id=group) as client:
        serializer = AvroSerializer(
            client, artifact_resolver=TopicIdStrategy(), schema=schema(), auto_register=True, use_id=id
        )
        written = serializer(VALUE, context(name))
    with ApicurioRegistryClient(url=URL, group_id=group) as client:
        assert AvroDeserializer(client, use_id=id)(written, context(name)) == VALUE
        found = AvroSerializer(client, artifact_resolver=TopicIdStrategy(), use_id=id)
        assert found(VALUE, context(name)) == written


def test_the_latest_version_is_the_readers_schema() -> None:
    name, first = topic(), schema()
    grown = {**first, "fields": [*first["fields"], {"name": "new", "type": "int", "default": 3}]}
    with ApicurioRegistryClient(url=URL, group_id="default") as client:
        written = AvroSerializer(client, artifact_id=name, schema=first, auto_register=True)(
            VALUE, context(name)
        )
    with ApicurioRegistryClient(url=URL, group_id="default") as client:  # without the first one's cache
        client.register_schema(name, grown, "FIND_OR_CREATE_VERSION")
    with ApicurioRegistryClient(url=URL, group_id="default") as client:
        reader = AvroDeserializer(client, artifact_id=name, use_latest_version=True)
        assert reader(written, context(name)) == {**VALUE, "new": 3}


def test_a_missing_artifact_and_an_existing_one_are_errors() -> None:
    with ApicurioRegistryClient(url=URL, group_id="default") as client:
        name = topic()
        with pytest.raises(SchemaNotFoundError):
            client.get_schema(name)
        with pytest.raises(SchemaNotFoundError):
            client.get_schema_by_global_id(2**31)
        client.register_schema(name, schema(), "FAIL")
    with (
        ApicurioRegistryClient(
            url=URL, group_id="default"
        ) as another,  # which caches nothing of the first one
        pytest.raises(SchemaRegistrationError),
    ):
        another.register_schema(name, schema(), "FAIL")


def test_the_asynchronous_client_reads_the_same() -> None:
    name = topic()
    with ApicurioRegistryClient(url=URL, group_id="default") as client:
        serializer = AvroSerializer(client, artifact_id=name, schema=schema(), auto_register=True)
        written = serializer(VALUE, context(name))

    async def read() -> object:
        async with AsyncApicurioRegistryClient(url=URL, group_id="default") as client:
            return await AsyncAvroDeserializer(registry_client=client)(written, context(name))

    assert asyncio.run(read()) == VALUE


def test_confluents_serializers_and_apicurios_read_each_other() -> None:
    name, written = topic(), schema()
    registry = SchemaRegistryClient({"url": REGISTRY})
    there = ConfluentContext(name, ConfluentField.VALUE)
    with ApicurioRegistryClient(url=URL, group_id="default") as client:
        ours = AvroSerializer(client, artifact_id=f"{name}-value", schema=written, auto_register=True)
        by_apicurio = ours(VALUE, context(name))
        by_confluent = confluent.AvroSerializer(registry, json.dumps(written))(VALUE, there)
        assert by_apicurio == by_confluent
        assert confluent.AvroDeserializer(registry)(by_apicurio, there) == VALUE
        assert AvroDeserializer(client)(by_confluent, context(name)) == VALUE


def test_ids_in_headers_travel_through_kafka() -> None:
    name = topic()
    with ApicurioRegistryClient(url=URL, group_id="default") as client:
        serializer = AvroSerializer(
            client,
            artifact_id=name,
            schema=schema(),
            auto_register=True,
            wire_format=WireFormat.KAFKA_HEADERS,
        )
        message = serializer.serialize(VALUE, context(name))
        producer = Producer({"bootstrap.servers": KAFKA})
        producer.produce(name, message.payload, headers=list(message.headers.items()))
        assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": name})
    consumer.assign([TopicPartition(name, 0, 0)])
    found = consumer.poll(30)
    consumer.close()
    assert found is not None
    assert (found.value(), dict(found.headers() or ())) == (message.payload, message.headers)
