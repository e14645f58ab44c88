"""A broker's options from the settings of a process."""

from __future__ import annotations

from mainstem.broker.broker import BrokerOptions
from mainstem.broker.configs import parse
from mainstem.config import Config


def broker_options(config: Config) -> BrokerOptions:
    return BrokerOptions(
        data_dir=config.data_dir,
        broker_id=config.broker_id,
        node=config.node,
        default_config=parse({"mainstem.durability": config.durability}),
        segment_bytes=config.segment_bytes,
        checkpoint_every_bytes=config.checkpoint_every_bytes,
        tail_cache_bytes=config.tail_cache_bytes,
        sync_every_ms=config.sync_every_ms,
        topics_max=config.max_topics,
        routers_max=config.max_routers,
        total_bytes_max=config.max_total_bytes,
        lake_topics=config.lake_topics,
    )
