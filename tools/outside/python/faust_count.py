"""Count words with Faust: python faust_count.py worker, with BROKERS and STATE in the environment.

It reads the topic faust-lines, divides the words by another topic of its own, and keeps the counts in a table.
"""

import os
from typing import Any

import faust  # type: ignore[import-not-found]

app = faust.App(
    "faust-count",
    broker=";".join(f"kafka://{one}" for one in os.environ["BROKERS"].split(",")),
    datadir=os.environ["STATE"],
    store="memory://",
    topic_partitions=2,
    topic_replication_factor=1,
    broker_session_timeout=6.0,
    broker_heartbeat_interval=1.0,
    broker_commit_interval=0.3,
    consumer_auto_offset_reset="earliest",
    processing_guarantee=os.environ.get("GUARANTEE", "at_least_once"),
    web_enabled=False,
)
lines = app.topic("faust-lines", value_type=str, value_serializer="raw")
words = app.topic(
    "faust-words", key_type=str, value_type=str, key_serializer="raw", value_serializer="raw", partitions=2
)
counts = app.Table("counts", default=int, key_type=str, partitions=2)


@app.agent(lines)  # type: ignore[untyped-decorator]
async def divide(stream: Any) -> None:
    async for line in stream:
        for word in line.split():
            await words.send(key=word, value=word)


@app.agent(words)  # type: ignore[untyped-decorator]
async def count(stream: Any) -> None:
    async for word in stream:
        counts[word] += 1


app.main()
