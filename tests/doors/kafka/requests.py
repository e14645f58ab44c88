"""Data requests in every version, built with the message library's own classes."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from kio.index import load_payload_module
from kio.static.constants import EntityType
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, DELETE_RECORDS, EPOCH_END = 0, 1, 2, 3, 18, 21, 23


def ms(value: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=value))


def module(key: int, version: int) -> Any:
    return load_payload_module(key, version, EntityType.request)


def made(schema: type[Any], **fields: Any) -> Any:
    """A message of any version: fields that it does not have are left out."""
    known = schema.__dataclass_fields__
    return schema(**{name: value for name, value in fields.items() if name in known})


def produce(
    version: int,
    topic: str | uuid.UUID,
    *records: bytes | None,
    acks: int = -1,
    partitions: list[int] | None = None,
    transactional_id: str | None = None,
) -> Any:
    """One batch for each partition; from partition 0 on if none are named."""
    classes = module(PRODUCE, version)
    indexes = partitions if partitions is not None else range(len(records))
    data = tuple(
        classes.PartitionProduceData(
            index=i32(index), records=None if batch is None else Records(bytes(batch))
        )
        for index, batch in zip(indexes, records, strict=True)
    )
    wanted = made(classes.TopicProduceData, name=topic, topic_id=topic, partition_data=data)
    return made(
        classes.ProduceRequest,
        transactional_id=transactional_id,
        acks=i16(acks),
        timeout=ms(5000),
        topic_data=(wanted,),
    )


def fetch(
    version: int,
    topic: str | uuid.UUID,
    *places: tuple[int, int],
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    epoch: int = -1,
    session: tuple[int, int] = (0, -1),
    isolation: int = 0,
    rack: str = "here",
    forgotten: Sequence[int] = (),
) -> Any:
    """`places` are (partition, offset)."""
    classes = module(FETCH, version)
    parts = tuple(
        made(
            classes.FetchPartition,
            partition=i32(partition),
            current_leader_epoch=i32(epoch),
            fetch_offset=i64(offset),
            partition_max_bytes=i32(partition_max_bytes),
        )
        for partition, offset in places
    )
    wanted = made(classes.FetchTopic, topic=topic, topic_id=topic, partitions=parts)
    return made(
        classes.FetchRequest,
        max_wait=ms(wait_ms),
        min_bytes=i32(min_bytes),
        max_bytes=i32(max_bytes),
        isolation_level=i8(isolation),
        session_id=i32(session[0]),
        session_epoch=i32(session[1]),
        topics=(wanted,) if parts else (),
        forgotten_topics_data=(
            made(classes.ForgottenTopic, topic=topic, topic_id=topic, partitions=tuple(map(i32, forgotten))),
        )
        if forgotten
        else (),
        rack_id=rack,
    )


def list_offsets(
    version: int, topic: str, *places: tuple[int, int], epoch: int = -1, isolation: int = 0
) -> Any:
    """`places` are (partition, time)."""
    classes = module(LIST_OFFSETS, version)
    parts = tuple(
        made(
            classes.ListOffsetsPartition,
            partition_index=i32(partition),
            current_leader_epoch=i32(epoch),
            timestamp=i64(time),
        )
        for partition, time in places
    )
    wanted = classes.ListOffsetsTopic(name=topic, partitions=parts)
    return made(
        classes.ListOffsetsRequest,
        replica_id=i32(-1),
        isolation_level=i8(isolation),
        topics=(wanted,),
        timeout=ms(1000),
    )


def metadata(version: int, *topics: str | uuid.UUID, create: bool = True, all: bool = False) -> Any:
    classes = module(METADATA, version)
    wanted = tuple(
        made(
            classes.MetadataRequestTopic,
            name=topic if isinstance(topic, str) else None,
            topic_id=topic if isinstance(topic, uuid.UUID) else None,
        )
        for topic in topics
    )
    return made(
        classes.MetadataRequest,
        topics=None if all and version else wanted,
        allow_auto_topic_creation=create,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
