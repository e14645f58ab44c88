"""A broker's options from the settings of a process."""

from __future__ import annotations

from mainstem.address import Address
from mainstem.broker.access.options import access_options
from mainstem.broker.broker import BrokerOptions
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.storage.opening import linger_ms
from mainstem.broker.topics.configs import parse
from mainstem.config import Config
from mainstem.errors import InvalidConfig
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.log.objects.tiering import HotRetention
from mainstem.ports.commitlog.shared.open import SharedPlace


def broker_options(config: Config) -> BrokerOptions:
    place = shared_place(config)
    if config.objects and place is not None:
        raise InvalidConfig(
            "--objects is for a log in the data directory: a shared log stores everything in --store"
        )
    return BrokerOptions(
        data_dir=config.data_dir,
        broker_id=config.broker_id,
        node=config.node,
        default_config=parse({"mainstem.durability": config.durability}),
        segment_bytes=config.segment_bytes,
        checkpoint_every_bytes=config.checkpoint_every_bytes,
        tail_cache_bytes=config.tail_cache_bytes,
        sync_every_ms=config.sync_every_ms,
        repack=RepackOptions(
            on=config.repack == "on",
            after_objects=config.repack_after_objects,
            bytes_per_s=config.repack_bytes_per_s,
        ),
        topics_max=config.max_topics,
        partitions_max=config.max_partitions,
        routers_max=config.max_routers,
        total_bytes_max=config.max_total_bytes,
        clock_step_ms=config.clock_step_ms,
        accept_missing=config.accept_missing,
        lake_topics=config.lake_topics,
        table_locations=tuple(filter(None, (url.strip() for url in config.table_locations.split(",")))),
        access=access_options(config),
        groups=GroupOptions(
            members_max=config.kafka_group_members,
            initial_delay_ms=config.kafka_group_delay_ms,
            offsets_retention_ms=config.kafka_offsets_retention_ms,
        ),
        audit=config.audit,
        place=place,
        workers=config.workers > 1,
        zone=config.zone,
        objects=(config.objects or config.store) if place is None else "",
        hot=HotRetention(config.hot_retain_bytes, config.hot_retain_segments) if config.objects else None,
    )


def shared_place(config: Config) -> SharedPlace | None:
    """The location of a shared log, or None. Raises InvalidConfig."""
    kind = config.log
    if kind == "auto":
        kind = "etcd" if config.etcd else "bucket" if config.store else "file"
    if kind == "file":
        return None
    if not config.store:
        raise InvalidConfig(f"--log {kind} needs an object store: set --store URL")
    members = tuple(filter(None, config.etcd.split(",")))
    if kind == "etcd" and not members:
        raise InvalidConfig("--log etcd needs the addresses of etcd: set --etcd HOST:PORT,…")
    for member in members:
        Address.parse(member)
    etcd = kind == "etcd"
    return SharedPlace(config.store, members if etcd else (), linger_ms(config.linger_ms, etcd=etcd))
