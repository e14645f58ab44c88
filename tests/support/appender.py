"""A process that appends until it is killed: `python -m tests.support.appender DIRECTORY LIFE`.

Prints a line for every acknowledgement, `topic offset value`, right after it arrives.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ledger.config import Durability, TopicConfig
from mainstem.log.objects.repack.plan import RepackOptions

TOPICS: tuple[Durability, ...] = ("fsync", "disk", "memory", "ephemeral")
WRITERS = 3

_TRIM_EVERY = 500


def options(directory: Path) -> BrokerOptions:
    """Small objects, many checkpoints, and immediate repacking, so that kills interrupt all of them."""
    return BrokerOptions(
        directory,
        segment_bytes=32 * 1024,
        checkpoint_every_bytes=128 * 1024,
        repack=RepackOptions(
            after_objects=2,
            least_bytes=0,
            round_bytes=64 * 1024,
            merged_rounds=3,
            file_bytes=16 * 1024,
            grace_s=0.0,
        ),
    )


async def _write(broker: Broker, topic: str, writer: str) -> None:
    for number in range(1 << 30):
        value = f"{writer}:{number}"
        appended = await broker.append_values(topic, [value.encode()])
        # One system call per line: a kill leaves only whole lines, and none before its ack.
        os.write(1, f"{topic} {appended.base_offset} {value}\n".encode())
        if number % _TRIM_EVERY == _TRIM_EVERY - 1:
            await broker.commit_offset("group", topic, appended.base_offset)


async def _main(directory: Path, life: str) -> None:
    broker = await Broker.open(options(directory))
    for durability in TOPICS:
        await broker.create_topic(durability, config=TopicConfig(durability=durability), exist_ok=True)
    async with asyncio.TaskGroup() as writers:
        for topic in TOPICS:
            for writer in range(WRITERS):
                writers.create_task(_write(broker, topic, f"{life}.{writer}"))


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), sys.argv[2]))
